"""`armillary plan machine`: which machine within a budget does the most of a mix of training and serving."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.options import html_option, json_option, programs_option, top_option
from armillary.cli.outputs import say, show_table, write_html, write_json
from armillary.cli.plan import SUBCOMMANDS
from armillary.cli.plan.search import Progress
from armillary.cli.values import STORE

BUDGET = "Budget"
_HELP = f"""{SUBCOMMANDS["machine"]}

MIX is a YAML file with weighted workloads, machines with their varied keys and costs, and a budget, which options
override. The goodput of a machine is how much of the mix it completes in the time that the first machine needs for all
of it. Machines are bounded first, and simulated until no other can be better.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary plan machine mix.yaml --power '60 kW'",
        "armillary plan machine mix.yaml --cost-per-year '2 MUSD' --most 20 --store found.sqlite --json found.json",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="MIX")
@option("--capital", metavar="MONEY", heading=BUDGET, help="Maximum purchase price of a machine: '5 MUSD'.")
@option("--cost-per-year", metavar="MONEY", heading=BUDGET,
        help="Maximum cost per year: the price over the machine's years, or rent, plus electricity at full "
        "power.")  # fmt: skip
@option("--power", metavar="POWER", heading=BUDGET,
        help="Maximum power with every NPU busy: '60 kW'.")  # fmt: skip
@option("--most", type=click.IntRange(1), metavar="N", heading="Search",
        help="Examine at most N machines; by default continue until the best is proved.")  # fmt: skip
@option("--store", type=STORE, metavar="FILE", heading="Search",
        help="Keep simulated results in a sweep store, and resume from it.")  # fmt: skip
@top_option("Machines", 5, heading="Search")
@html_option()
@json_option("Write the result as JSON, in s, USD and W.")
@programs_option
def command(
    file: Path, capital: str | None, cost_per_year: str | None, power: str | None, most: int | None,
    store: Path | None, top: int, html: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Search and print."""
    from armillary.explore.codesign.search import plan_machine
    from armillary.explore.codesign.show import binding, codesign_json, designs_table, details, headline

    found = plan_machine(
        file, capital=capital, cost_per_year=cost_per_year, power=power, most=most, store=store,
        progress=Progress(),
    )  # fmt: skip
    for line in headline(found):
        say(line)
    show_table(designs_table(found, top))
    for line in (*binding(found), *details(found)):
        say(line)
    write_html(html, found)
    write_json(json_file, codesign_json(found))
