"""`armillary capture`: run a PyTorch script as ranks of a cluster that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli import COMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import device_option, json_option, ranks_option
from armillary.cli.outputs import say, show_table, working, write_json
from armillary.cli.values import OUTPUT_FOLDER, OutputPrefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armillary.capture.log import Log
FEW = 3
PROGRAM, WHAT = "Program", "What is recorded"


def _ranks(_: click.Context, param: click.Parameter, text: str) -> str | tuple[int, ...]:
    """Return the ranks of ``--run``, or its word."""
    if text in ("auto", "all"):
        return text
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is neither 'auto' nor 'all' nor ranks such as 0,5", param=param
        ) from None


@click.command(
    cls=Command,
    help=f"{COMMANDS['capture']}\n\nSCRIPT runs unchanged, without a GPU and without memory for its tensors, until its "
    "third optimizer step is recorded. Put options before SCRIPT and its arguments after it. Its output is discarded.",
    # Options after SCRIPT belong to the script.
    context_settings={"allow_interspersed_args": False},
    examples=(
        "armillary capture --ranks 512 --device h100 --out cap train.py --layers 32",
        "armillary capture --ranks 16 --run 0,15 --out cap -m package.train --steps 3",
    ),
)
@ranks_option("Ranks of the program.", heading=PROGRAM, default=1, show_default=True)
@device_option("GPU that the script sees.", heading=PROGRAM, default="h100", show_default=True)
@option(
    "--run", "run", heading=WHAT, default="auto", show_default=True, callback=_ranks, metavar="auto|all|RANK,…",
    help="Ranks to run; auto: the first, the last, one per pipeline stage and one at random, or all if these differ.",
)  # fmt: skip
@option(
    "--step", heading=WHAT, type=click.IntRange(0), default=3, show_default=True,
    help="Optimizer step to record; a script with fewer steps: the last one; 0: the whole script.",
)  # fmt: skip
@option(
    "--every-microbatch", heading=WHAT, is_flag=True,
    help="Run microbatches of a pipeline one by one, also those that do the same as those before them.",
)  # fmt: skip
@option("-m", "--module", "module", heading=PROGRAM, is_flag=True, help="SCRIPT is the name of a module.")
@option(
    "-o", "--out", type=OUTPUT_FOLDER, required=True, metavar="DIR", help="Folder for the recorded ranks."
)
@option(
    "--traces",
    type=OutputPrefix(".0.et"),
    metavar="PREFIX",
    help="Write Chakra traces of all ranks, PREFIX.<rank>.et.",
)
@json_option("Write the classes of ranks with their operators and collectives as JSON.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT]...")
def command(
    ranks: int,
    device: str,
    run: str | tuple[int, ...],
    step: int,
    every_microbatch: bool,
    module: bool,
    out: Path,
    traces: str | None,
    json_file: Path | None,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run, and say what was captured."""
    from armillary.capture.launch import capture_script
    from armillary.capture.summary import document

    wanted = None if run == "auto" else tuple(range(ranks)) if run == "all" else tuple(map(int, run))
    with working("capturing"):
        logs = capture_script(
            script, arguments, folder=out, ranks=ranks, run=wanted, device=device, step=step, module=module,
            every_microbatch=every_microbatch,
        )  # fmt: skip
    present(logs)
    if traces:
        from armillary.capture.chakra import trace_of
        from armillary.trace import write_trace

        write_trace(traces, trace_of(logs))
        say(f"wrote {traces}.0.et to {traces}.{ranks - 1}.et", err=True)
    write_json(json_file, document(logs))


def present(logs: list[Log]) -> None:
    """Print the classes of ranks, and what was assumed."""
    from rich import box
    from rich.table import Table

    from armillary.base.units import format_bytes
    from armillary.capture.summary import assumptions, classes, flops, streams, unknown

    first = logs[0]
    run = "all" if len(logs) == first.ranks else f"{len(logs)} of {first.ranks}"
    step = f"step {first.step}" if first.step else "all of the script"
    say(f"{first.script}: {run} ranks run on {first.device}, PyTorch {first.torch}, {step}")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("ranks", "run", "operators", "FLOP", "peak memory", "collectives", "messages", "streams"):
        table.add_column(name, justify="right")
    found = classes(logs)
    for each in found:
        log = each.log
        calls = [one for _, one in log.issued()]
        messages = sum(one.type in ("send", "recv") for one in calls)
        table.add_row(
            _listed(each.ranks), _listed(each.run), f"{sum(1 for _ in log.operators()):,}",
            f"{sum(flops(log).values()):.4g}", format_bytes(log.peak_bytes), str(len(calls) - messages), str(messages),
            str(len(streams(log))),
        )  # fmt: skip
    show_table(table)
    if any(each.log.reserved_bytes for each in found):
        say(_memory([each.log for each in found]))
    if (known := sum(len(each.ranks) for each in found)) < first.ranks:
        say(f"Ranks whose work does not follow from these: {first.ranks - known:,}; --run names more")
    for each in found:
        if len(each.ranks) == 1 and len(logs) < first.ranks:
            say(
                f"Rank {each.ranks[0]} alone differs from others of its place, which stand for those that were not run"
            )
        if each.uneven:
            say(f"Ranks {_listed(each.run)} differ in {each.uneven} operators: uneven shards or copies")
    assumed = assumptions(logs)
    for text in assumed:
        say(f"Assumed: {text}")
    for note in dict.fromkeys(note for each in found for note in each.log.notes if note not in assumed):
        say(f"Note: {note}")
    for name, count in unknown(first).items():
        say(
            f"Unknown operator: {name}, {count} times: its FLOP are not counted, its time is that of its bytes"
        )


def _listed(ranks: tuple[int, ...]) -> str:
    """Return ranks as text: all of a few, else how many."""
    return ", ".join(map(str, ranks)) if len(ranks) <= FEW else f"{ranks[0]} … {ranks[-1]} ({len(ranks)})"


def _memory(logs: Sequence[Log]) -> str:
    """Return whether the rank that needs most memory fits on the device."""
    from armillary.base.units import format_bytes
    from armillary.capture.device import fake_device
    from armillary.workload.memory.outside import CHANNELS, CONNECTION, CONTEXT

    def outside(log: Log) -> int:
        return CONTEXT + CHANNELS * CONNECTION * sum(len(ranks) > 1 for ranks in log.groups)

    most = max(logs, key=lambda log: log.reserved_bytes + outside(log))
    needed, has = most.reserved_bytes + outside(most), fake_device(most.device).memory
    return (
        f"Memory: {'fits' if needed <= has else 'does not fit'}: {format_bytes(needed)} of {format_bytes(has)}, "
        f"of which PyTorch reserves {format_bytes(most.reserved_bytes)}, and the rest is assumed for CUDA and NCCL"
    )
