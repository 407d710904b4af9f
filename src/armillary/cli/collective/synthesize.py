"""`armillary collective synthesize`: find a collective for a network."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.collective import SUBCOMMANDS, bytes_of
from armillary.cli.command import Command, option
from armillary.cli.options import json_option, machine_argument, plot_option, seed_option
from armillary.cli.outputs import say, write_json
from armillary.cli.values import OUTPUT, OUTPUT_FOLDER

_WHAT, _HOW = "The collective", "How it is found"


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['synthesize']}\n\nMACHINE is a study or platform file, or the name of a preset.",
    examples=(
        'armillary collective synthesize mesh.yaml --size "120 MB"',
        'armillary collective synthesize mesh.yaml --size "1 GB" --msccl mesh.xml --out traces',
    ),
)
@machine_argument()
@option(
    "--operation",
    heading=_WHAT,
    type=click.Choice(("all-reduce", "all-gather", "reduce-scatter")),
    default="all-reduce",
    show_default=True,
    help="Collective operation.",
)
@option(
    "--size",
    required=True,
    heading=_WHAT,
    metavar="SIZE",
    help='Bytes of the vector, or of the whole gathered result: "1 GB".',
)
@option(
    "--chunks-per-npu",
    heading=_HOW,
    type=click.IntRange(1),
    metavar="K",
    help="Chunks per share.  [default: try several]",
)
@seed_option(default=0, show_default=True, heading=_HOW)
@option(
    "--tries",
    heading=_HOW,
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="Number of seeds to try.",
)
@option(
    "--network-model",
    heading=_HOW,
    type=click.Choice(("congestion", "flow")),
    default="congestion",
    show_default=True,
    help="Model that simulates it and the built-in algorithms.",
)
@option("--msccl", type=OUTPUT, metavar="FILE", help="Write the schedule as MSCCL XML.")
@option(
    "--mscclpp",
    type=OUTPUT,
    metavar="FILE",
    help="Write the schedule as an MSCCL++ execution plan, with protocol Simple.",
)
@option("-o", "--out", type=OUTPUT_FOLDER, metavar="DIR", help="Write Chakra traces DIR/rank.RANK.et.")
@plot_option("it")
@json_option("Write the result as JSON, times in ns.")
def command(
    machine: str,
    operation: str,
    size: str,
    chunks_per_npu: int | None,
    seed: int,
    tries: int,
    network_model: str,
    msccl: Path | None,
    mscclpp: Path | None,
    out: Path | None,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Find it, compare and write."""
    from armillary.base.files import make_folder, write_text
    from armillary.cli.outputs import show_table, working
    from armillary.platform import load_platform

    # Before the imports below: a wrong size must not wait for them.
    count = bytes_of("--size", size)
    platform = load_platform(machine)
    from armillary.explore.synthesis import compare
    from armillary.explore.synthesis_show import describe, draw, table

    with working("synthesizing"):
        found = compare(
            platform,
            operation,
            count,
            chunks_per_npu=chunks_per_npu,
            seed=seed,
            tries=tries,
            network_model=network_model,
        )
    show_table(table(found))
    write_json(json_file, describe(found))
    # What is written is the synthesised schedule, even if a built-in algorithm is faster.
    note = (
        "" if found.taken == "synthesized" else f": the synthesized schedule, though {found.taken} is faster"
    )
    if msccl:
        from armillary.collective.synthesis.xml import to_msccl

        # MSCCL's format, for its runtime.
        write_text(msccl, to_msccl(found.schedule))
        say(f"wrote {msccl}{note}", err=True)
    if mscclpp:
        from armillary.collective.synthesis.plan import to_plan

        write_json(mscclpp, to_plan(found.schedule))
        say(f"wrote {mscclpp}{note}", err=True)
    if out:
        from armillary.collective.synthesis.traces import to_trace
        from armillary.trace import write_trace

        make_folder(out)
        # Reductions take time on the NPU's memory, which the trace must say.
        write_trace(out / "rank", to_trace(found.schedule, platform.npu.memory.bytes_per_s))
        say(f"wrote {out}/rank.0.et to rank.{platform.npus - 1}.et{note}", err=True)
    if plot:
        draw(found, plot)
        say(f"wrote {plot}", err=True)
