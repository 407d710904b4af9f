"""`armillary machine compare`: which of several machines trains a model fastest, at what cost, and how certainly."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.generate.plan_options import PlanOptions, plan_options
from armillary.cli.machine import SUBCOMMANDS
from armillary.cli.options import graph_option, json_option, plot_option, programs_option
from armillary.cli.outputs import say, show_table, write_json
from armillary.cli.plan.search import Progress
from armillary.cli.values import complete_costs, complete_machines, complete_models, complete_software


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['compare']}\n\nMACHINES are presets, which may be counted (64xdgx-h100), or files. Each "
    "runs its own fastest plan, unless options set the parallelism: then all machines run that plan.",
    examples=(
        "armillary machine compare 8xdgx-h100 8xdgx-b200 --workload llama-3-8b --batch 128",
        "armillary machine compare a.yaml b.yaml --workload llama-3-70b --batch 512 --tp 8 --costs h100",
    ),
)
@click.argument("machines", nargs=-1, required=True, shell_complete=complete_machines)
@option(
    "--workload", required=True, metavar="MODEL", shell_complete=complete_models, heading="Comparison",
    help="Name of a model, a model file, or a Hugging Face config.json.",
)  # fmt: skip
@option(
    "--costs", multiple=True, metavar="COSTS", shell_complete=complete_costs, heading="Comparison",
    help="Prices and energies, a file or a preset: one for all machines, or one per machine, in their order.",
)  # fmt: skip
@option(
    "--software", metavar="NAME", shell_complete=complete_software, heading="Comparison",
    help="Training software; by default the one that suits machine and plan.",
)  # fmt: skip
@graph_option("Comparison")
@plan_options("training")
@plot_option("step times with intervals and bounds, and costs")
@json_option("Write the result as JSON, in s, USD and W.")
@programs_option
def command(
    machines: tuple[str, ...], workload: str, costs: tuple[str, ...], software: str | None, graph: str | None,
    options: PlanOptions, plot: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Compare and print."""
    from armillary.explore.cost import load_costs
    from armillary.explore.training.fabrics import compare_machines
    from armillary.explore.training.fabrics_show import fabrics_json, fabrics_table, headline, notes, picture

    prices = [load_costs(each) for each in costs]
    with options.keys() as keys:
        found = compare_machines(
            workload,
            machines,
            costs=prices,
            software=software or "",
            graph=graph or "",
            progress=Progress(),
            **keys,
        )
    click.echo(headline(found))
    show_table(fabrics_table(found))
    for line in notes(found):
        say(line)
    if plot:
        picture(found, plot)
        say(f"wrote {plot}", err=True)
    write_json(json_file, fabrics_json(found))
