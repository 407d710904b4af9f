"""`armillary collective show`: the steps of an algorithm."""

from __future__ import annotations

import sys

import click

from armillary.cli.collective import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import ranks_option


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['show']}\n\nOf ring, direct, halvingDoubling and doubleBinaryTree as ASTRA-sim runs them, one "
    "chunk at a time; of others, also of other packages, as profile physical does.",
    examples=(
        "armillary collective show ring --ranks 4",
        "armillary collective show in-switch --ranks 4 --segments 3",
    ),
)
@click.argument("algorithm", metavar="ALGORITHM")
@ranks_option("Number of members.", required=True)
@option("--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes.")
@option("--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]")
@option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Parts of the data (in-switch, chain and scatterAllGather).",
)
def command(algorithm: str, ranks: int, operation: str, window: int | None, segments: int) -> None:
    """Print the table."""
    import shutil

    from armillary.platform.collectives import ALGORITHMS, BUILT_IN, known_name

    width = shutil.get_terminal_size((100, 24)).columns
    algorithm = known_name(algorithm, ALGORITHMS)
    # Algorithms that ASTRA-sim also runs are drawn as it runs them.
    if algorithm not in [each.name for each in BUILT_IN if each.astra_sim]:
        from armillary.collective.algorithms import find_algorithm
        from armillary.collective.show import render as render_rounds

        # Algorithms without chunks have no segments.
        cuts = find_algorithm(algorithm).usual_chunks(2) is not None
        click.echo(
            render_rounds(algorithm, operation, ranks, segments if cuts else None, width=width), nl=False
        )
        return
    from armillary.engine.astra_sim.collective.algorithms import schedule_for
    from armillary.engine.astra_sim.collective.show import render

    schedule = schedule_for(algorithm, operation, ranks, window=window)
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)
