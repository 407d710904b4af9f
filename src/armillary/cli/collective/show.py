"""`armillary collective show`: the steps of an algorithm."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("algorithm", metavar="ALGORITHM")
@click.option("-n", "members", type=int, required=True, metavar="N", help="Number of members.")
@click.option(
    "--operation", default="all-reduce", show_default=True, metavar="NAME", help="What it computes."
)
@click.option(
    "--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]"
)
@click.option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Parts of the data (in-switch, chain and scatterAllGather).",
)
def command(algorithm: str, members: int, operation: str, window: int | None, segments: int) -> None:
    """Print the chunk-flow table of an algorithm.

    Of ring, direct, halvingDoubling and doubleBinaryTree as ASTRA-sim runs them, one chunk at a time; of others, also
    of other packages, as profile physical does.
    """
    import shutil

    from armillary.platform.algorithms import known_name
    from armillary.platform.collectives import ALGORITHMS, BUILT_IN

    width = shutil.get_terminal_size((100, 24)).columns
    algorithm = known_name(algorithm, ALGORITHMS)
    if algorithm not in [each.name for each in BUILT_IN if each.astra_sim]:
        from armillary.collective.algorithms import find_algorithm
        from armillary.collective.show import render as render_rounds

        cuts = find_algorithm(algorithm).usual_chunks(2) is not None
        click.echo(
            render_rounds(algorithm, operation, members, segments if cuts else None, width=width), nl=False
        )
        return
    from armillary.engine.astra_sim.collective.algorithms import schedule_for
    from armillary.engine.astra_sim.collective.show import render

    schedule = schedule_for(algorithm, operation, members, window=window)
    click.echo(render(schedule, width=width, markup=sys.stdout.isatty()), nl=False)
