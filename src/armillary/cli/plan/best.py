"""`armillary plan MODEL`: which parallelism, recomputation and microbatch train a model fastest on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.generate.plan_options import PlanOptions
from armillary.cli.options import html_option, json_option, top_option
from armillary.cli.outputs import show_table, write_html, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.plan.search import Progress
from armillary.cli.train import present, step_options, take_away

if TYPE_CHECKING:
    from armillary.explore.training.choose import Choice


@click.command(
    cls=Command,
    help=f"{COMMANDS['plan']}\n\nEvery possible plan that fits into memory is bounded, and plans that may be among "
    "the best are simulated. Plan options apply to all plans that are tried. Use `armillary plan search` for the "
    "points of a sweep file.",
    examples=(
        "armillary plan llama-3-8b --machine dgx-h100 --batch 64 --sequence 8192",
        "armillary plan llama-3-70b --machine 64xdgx-h100 --batch 512 --precision fp8 --out best",
    ),
    beside=SUBCOMMANDS,
)
@step_options
@option(
    "--among",
    type=click.Path(path_type=Path),
    metavar="FILE",
    heading="Search",
    help="Rank only these plans: a YAML or JSON list of mappings with the keys of a plan.",
)
@top_option("Plans", 10, heading="Search")
@html_option()
@json_option("Write the result as JSON, in s and bytes.")
def command(
    name: str, machine: str, software: str | None, graph: str | None, among: Path | None, options: PlanOptions,
    top: int, folder: Path | None, html: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Search and print."""
    from armillary.explore.training.among import read_plans
    from armillary.explore.training.choose import plan
    from armillary.explore.training.show import choice_json

    plans = read_plans(among) if among else None
    with options.keys() as keys:
        found = plan(
            name, machine, software=software or "", graph=graph or "", among=plans, top=top, progress=Progress(),
            **keys,
        )  # fmt: skip
    _present(found)
    write_json(json_file, choice_json(found))
    write_html(html, found)
    take_away(folder, found.best, name)


def _present(found: Choice) -> None:
    from armillary.explore.training.show import plans_table, reasons_table

    present(found.best)
    of = len(found.plans) + len(found.rejected)
    click.echo(f"\nThe {len(found.plans)} best of {of:,} plans; {found.simulated:,} simulated")
    show_table(plans_table(found))
    if found.rejected:
        click.echo("\nWhy the others are not among them")
        show_table(reasons_table(found))
