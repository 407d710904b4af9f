"""`armillary calibrate observe`: a machine file from measurements of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.calibrate import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import MACHINE, machine_option, ranks_option
from armillary.cli.values import STORE, complete_software

_FILES = "What files do not say"
_HELP = f"""{SUBCOMMANDS["observe"]}

The contents of a FILE determine its kind: a log of nccl-tests or a table of such times, a PyTorch profile of a rank
(JSON, with record_shapes), a table of GEMMs (m, n, k, time), or steps (YAML, or a table: model, seconds and the keys of
a plan). Any one of these is enough. Whatever was not observed is taken from a machine like yours, and the result says
so.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary calibrate observe all_reduce.log gemms.csv steps.yaml --out mycluster.yaml",
        "armillary calibrate observe rank0.json --machine 2xdgx-h100 --out mycluster.yaml",
    ),
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@machine_option(
    "Machine that yours resembles; may be counted (2xdgx-h100). By default it follows from the device that the "
    "files name."
)
@ranks_option(
    "Devices of the machine; by default those of --machine, or as many as were observed.", heading=MACHINE
)
@option(
    "--software", metavar="NAME", shell_complete=complete_software, heading=MACHINE,
    help="Software that the steps were measured with; by default what the files say, or what trains on such a "
    "machine.",
)  # fmt: skip
@option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    heading=_FILES,
    help="GPUs per node, if a log does not list its ranks.",
)
@option(
    "--operation", metavar="NAME", heading=_FILES,
    help="Operation of logs that do not name their program, e.g. all-reduce.",
)  # fmt: skip
@option(
    "--unit",
    type=click.Choice(("ns", "us", "ms", "s")),
    default="us",
    show_default=True,
    heading=_FILES,
    help="Unit of the GEMM times.",
)
@option("--precision", type=click.Choice(("fp32", "bf16", "fp8")), default="bf16", show_default=True,
        heading=_FILES, help="Precision of the GEMMs, if no column states it.")  # fmt: skip
@option(
    "-o",
    "--out",
    type=STORE,
    metavar="FILE",
    help="Machine file to write (.yaml); its parts are written next to it.",
)
def command(
    files: tuple[Path, ...],
    machine: str | None,
    ranks: int | None,
    software: str | None,
    gpus_per_node: int | None,
    operation: str | None,
    unit: str,
    precision: str,
    out: Path | None,
) -> None:
    """Read, fit, print and write."""
    import tempfile

    from armillary.cli.outputs import say, show_table
    from armillary.evidence.calibrate.nccl_device import known_operation
    from armillary.evidence.calibrate.observe.base import base_of
    from armillary.evidence.calibrate.observe.machine import observed_machine
    from armillary.evidence.calibrate.observe.read import observe
    from armillary.evidence.calibrate.observe.show import part_table, step_table

    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    observed = observe(
        files,
        operation=known_operation(operation),
        per_node=gpus_per_node,
        unit_ns=scale,
        precision=precision,
    )
    for note in observed.notes:
        say(f"warning: {note}", err=True)
    base = base_of(machine, observed.devices, ranks or observed.ranks)
    with tempfile.TemporaryDirectory(prefix="armillary-") as folder:
        found = observed_machine(
            observed, base, Path(folder), title=out.stem if out else "observed", ranks=ranks, per_node=gpus_per_node,
            software=software or "", tell=lambda what: say(f"fitting {what}", err=True),
        )  # fmt: skip
    show_table(part_table(found))
    click.echo()
    if found.steps:
        show_table(step_table(found))
        click.echo()
    for text in found.assumptions:
        say(f"Assumed: {text}")
    if out:
        for path in found.write(out):
            say(f"wrote {path}", err=True)
