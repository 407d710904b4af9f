"""`armillary plan cost`: the cost of buying and running a machine, and of a step and a whole run on it."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.options import json_option, programs_option
from armillary.cli.outputs import show_table, working, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.values import complete_costs

_HELP = f"""{SUBCOMMANDS["cost"]}

STUDY is a study file, which is simulated. COSTS is a file of prices and energies, or one of the presets h100,
h100-operations, libra, v100-cloud. Items that COSTS does not state are not counted, and are named.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary plan cost examples/llama.yaml --costs h100",
        "armillary plan cost examples/llama.yaml --costs h100 --tokens 15.6T --json -",
    ),
)
@click.argument("study", type=click.Path(path_type=Path))
@option(
    "--costs",
    required=True,
    metavar="COSTS",
    shell_complete=complete_costs,
    help="Prices and energies: a file, or a preset.",
)
@option(
    "--tokens", metavar="COUNT", help="Tokens of a whole run, e.g. 15.6T; adds its time, cost and energy."
)
@json_option()
@programs_option
def command(study: Path, costs: str, tokens: str | None, json_file: Path | None) -> None:
    """Simulate, sum up and print."""
    from armillary.base.errors import InputError
    from armillary.explore.cost import energy, load_costs, measures_of, price
    from armillary.explore.cost import show as tables
    from armillary.explore.cost.step import simulate_step
    from armillary.explore.whole_run.quantities import parse_tokens
    from armillary.report.memory_fit import memory_fit
    from armillary.report.summary import first_lines

    known = load_costs(costs)
    # Parsed before the simulation: a typo should not cost its time.
    run_tokens = parse_tokens("--tokens", tokens) if tokens else None
    with working("simulating"):
        step = simulate_step(study)
    # Only generated training has tokens per step.
    if run_tokens and not step.tokens:
        raise InputError(f"--tokens: {study} is no generated training of sequences, so a step has no tokens")
    platform = step.study.platform
    bought, spent = price(platform, known), energy(step.use, platform, known)
    found = measures_of(step.use, platform, known, tokens=step.tokens, run_tokens=run_tokens)
    for line in first_lines(step.timeline):
        click.echo(line)
    # What is not known is not shown as 0: tables of known parts only.
    if bought.items:
        show_table(tables.price_table(bought))
        click.echo()
    if spent.items:
        show_table(tables.energy_table(spent))
        click.echo()
    show_table(tables.measures_table(found))
    for line in tables.notes(bought, spent, known):
        click.echo(line)
    described = tables.describe(bought, spent, found, known) | {"memory": memory_fit(step.timeline)}
    write_json(json_file, described)
