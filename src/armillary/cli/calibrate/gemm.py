"""`armillary calibrate gemm`: fit a GPU's kernel constants to measured GEMMs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.calibrate import SUBCOMMANDS
from armillary.cli.command import Command, option
from armillary.cli.options import device_option
from armillary.cli.outputs import say, show_table
from armillary.cli.values import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from armillary.evidence.calibrate.gemm import Errors, Fitted


_HELP = f"""{SUBCOMMANDS["gemm"]}

A FILE has a header with m, n, k and time, and optionally precision, in the format of compute model `table`. A fifth of
the GEMMs is held out of the fit. The result is a device file for compute model `gpu`. From about
2,000 GEMMs on it also has residuals: what GEMMs that run alone take besides, by their size.
"""


@click.command(
    cls=Command,
    help=_HELP,
    examples=(
        "armillary calibrate gemm own.csv --device h100-sxm",
        'armillary calibrate gemm own.csv --device h100-sxm --name "Our H100" --out ours.yaml',
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@device_option(
    "GPU that supplies the data sheet, tiles and other constants: a name, or a file (.yaml).",
    "NAME|FILE",
    required=True,
)
@option("--name", help="Title of the measurements; by default --device.")
@option("-o", "--out", type=OUTPUT, metavar="FILE", help="Device file to write.")
@option(
    "--columns", default="", metavar="KEY=NAME,…", help="Other column names for m, n, k, time, precision."
)
@option(
    "--unit",
    type=click.Choice(("ns", "us", "ms", "s")),
    default="us",
    show_default=True,
    help="Unit of the times.",
)
@option("--precision", type=click.Choice(("fp32", "bf16", "fp8")), default="bf16", show_default=True,
        help="Precision of all rows, if no column states it.")  # fmt: skip
@option(
    "--leave-out",
    is_flag=True,
    help="Also refit without each third of the shapes: an honest error, but slow.",
)
@option(
    "--keep-constants",
    is_flag=True,
    help="Keep the constants of --device, and fit only the residuals by size.",
)
def command(
    files: tuple[Path, ...],
    device: str,
    name: str | None,
    out: Path | None,
    columns: str,
    unit: str,
    precision: str,
    leave_out: bool,
    keep_constants: bool,
) -> None:
    """Fit, print and write."""
    from armillary.base.files import write_text
    from armillary.compute.gpu.device import load_gpu
    from armillary.evidence.calibrate.device_file import device_text
    from armillary.evidence.calibrate.gemm import calibrate, read_gemms

    gpu = load_gpu(device)
    # Factors to ns.
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    found, notes = read_gemms(list(files), _columns(columns), scale, precision)
    for note in notes:
        say(f"warning: {note}", err=True)
    fits = {
        precision: calibrate(
            gpu,
            precision,
            measured,
            leave_out=leave_out,
            keep=keep_constants,
            progress=lambda what: click.echo(what, err=True),
        )
        for precision, measured in sorted(found.items())
        # One fit per precision that the files have.
    }
    show_table(_table(fits))
    if out:
        # Names of files say what was measured.
        write_text(out, device_text(gpu, name or device, fits, ", ".join(each.name for each in files)))
        say(f"Wrote {out}: platform.compute: {{model: gpu, device: {out}}}")


def _columns(text: str) -> Mapping[str, str]:
    from armillary.base.errors import InputError, nearest, one_of
    from armillary.compute.table_file import COLUMNS

    found: dict[str, str] = {}
    # "" is no option.
    for part in filter(None, text.split(",")):
        key, _, name = part.partition("=")
        if key not in COLUMNS or not name:
            raise InputError(
                f"--columns: got '{part}', expected KEY=NAME with {one_of(COLUMNS)}{nearest(key, COLUMNS)}"
            )
        found[key] = name
    return found


def _table(fits: Mapping[str, Fitted]) -> Table:
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(
        ("precision", "rows of 20 µs and more", "GEMMs", "mean error", "nine of ten")
    ):
        out.add_column(name, justify="left" if number < 2 else "right")
    for name, fitted in fits.items():
        _add(out, name, "fitted to", fitted.inside)
        _add(out, "", "held out", fitted.outside)
        if fitted.short.count:
            _add(out, "", "held out, shorter ones", fitted.short)
        for what, errors in zip(("held out", "held out, shorter ones"), fitted.before, strict=False):
            _add(out, "", f"{what}, without residuals", errors)
        for what, errors in fitted.groups.items():
            _add(out, "", f"without some {what}", errors)
    return out


def _add(out: Table, name: str, what: str, errors: Errors) -> None:
    if errors.count:
        out.add_row(
            name, what, f"{errors.count:,}", f"{100 * errors.mean:.1f} %", f"{100 * errors.worst:.1f} %"
        )
    # No rows: no mean either.
    else:
        out.add_row(name, what, "0", "-", "-")
