"""`armillary trace collect`: run a PyTorch script on all ranks and collect its traces."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.command import Command, option
from armillary.cli.options import ranks_option
from armillary.cli.outputs import say, show_table
from armillary.cli.trace import SUBCOMMANDS
from armillary.cli.values import OUTPUT_FOLDER


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['collect']}\n\nSCRIPT runs unchanged in N processes, with the environment that torchrun "
    "provides. A step ends with the step of its optimizer. Put options before SCRIPT, and its arguments after it.",
    # Options after SCRIPT belong to the script.
    context_settings={"allow_interspersed_args": False},
    examples=(
        "armillary trace collect --ranks 2 train.py",
        "armillary trace collect --ranks 8 --steps 3 --out traces train.py --epochs 1",
    ),
)
@ranks_option("Processes, one per rank.", default=1, show_default=True)
@option(
    "-o", "--out", type=OUTPUT_FOLDER, default=Path("traces"), show_default=True, metavar="DIR",
    help="Folder for the traces.",
)  # fmt: skip
@option("--steps", type=click.IntRange(1), default=1, show_default=True, help="Steps to record.")
@option("--warmup", type=click.IntRange(0), default=2, show_default=True, help="Warm-up steps before those.")
@option("--whole", is_flag=True, help="Record the whole script as one step.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT]...")
def command(
    ranks: int, out: Path, steps: int, warmup: int, whole: bool, script: Path, arguments: tuple[str, ...]
) -> None:
    """Run, and say what was collected."""
    from rich import box
    from rich.table import Table

    from armillary.base.units import format_bytes
    from armillary.convert.launch import collect_script

    found = collect_script(
        script, arguments, folder=out, ranks=ranks, warmup=warmup, steps=steps, whole=whole
    )
    if found.warning:
        # The script failed after what was wanted: the traces are complete.
        say(f"warning: {script}: {found.warning} after its steps were recorded", err=True)
    first = found.ranks[0]
    machine = f"PyTorch {first.torch}, {first.backend or 'one process'}, {first.accelerator or 'CPU'}"
    say(f"{out}: {machine}")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("rank", "steps", "groups", "host", "device"):
        table.add_column(name, justify="right")
    for rank in found.ranks:
        # Sizes on disk tell at a glance whether a device trace has anything in it.
        sizes = [format_bytes((out / name).stat().st_size) for name in (rank.host, rank.device)]
        table.add_row(str(rank.rank), str(rank.steps), str(len(rank.groups)), *sizes)
    show_table(table)
