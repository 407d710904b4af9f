"""`armillary collective show`: the steps of an algorithm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from armillary.cli.collective import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import ranks_option
from armillary.cli.outputs import say, write_json
from armillary.cli.values import OUTPUT


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['show']}\n\nring, direct, halvingDoubling and doubleBinaryTree are shown as ASTRA-sim runs "
    "them, one chunk at a time. All others, including those of other packages, are shown as profile physical runs "
    "them.",
    examples=(
        "armillary collective show ring --ranks 4",
        "armillary collective show in-switch --ranks 4 --segments 3",
        "armillary collective show ring --ranks 8 --mscclpp ring.json --protocol LL",
    ),
)
@click.argument("algorithm", metavar="ALGORITHM")
@ranks_option("Number of members.", required=True)
@option("--operation", default="all-reduce", show_default=True, metavar="NAME", help="Collective operation.")
@option("--window", type=int, metavar="W", help="Messages in flight (direct only).  [default: no limit]")
@option(
    "--segments",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="S",
    help="Segments of the data (in-switch, chain and scatterAllGather).",
)
@option(
    "--mscclpp", type=OUTPUT, metavar="FILE", help="Write an MSCCL++ execution plan instead of the table."
)
@option(
    "--protocol", type=click.Choice(("Simple", "LL")), default="Simple", show_default=True, help="Protocol of that "
    "plan.",
)  # fmt: skip
def command(
    algorithm: str,
    ranks: int,
    operation: str,
    window: int | None,
    segments: int,
    mscclpp: Path | None,
    protocol: Literal["Simple", "LL"],
) -> None:
    """Print the table, or write the plan."""
    import shutil

    from armillary.collective.show import check_members
    from armillary.platform.collectives import ALGORITHMS, BUILT_IN, known_name

    width = shutil.get_terminal_size((100, 24)).columns
    algorithm = known_name(algorithm, ALGORITHMS)
    if mscclpp:
        from armillary.collective.algorithms import find_algorithm
        from armillary.collective.mscclpp_write import plan_of

        parts = segments if find_algorithm(algorithm).usual_chunks(2) is not None else None
        write_json(mscclpp, plan_of(algorithm, operation, ranks, protocol, parts))
        say(f"wrote {mscclpp}", err=True)
        return
    # Before its messages are made: a tree of 4 M members takes minutes and 11 GB.
    check_members(ranks)
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
