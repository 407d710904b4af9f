"""`armillary calibrate gemm`: fit a GPU's kernel constants to measured matrix products."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.output_file import OUTPUT
from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from armillary.evidence.calibrate.gemm import Errors, Fitted


@click.command("gemm")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option("--device", required=True, metavar="NAME", help="Title of what was measured.")
@click.option(
    "--base", default=None, metavar="NAME|FILE.yaml",
    help="Device whose data sheet, tiles and other constants hold; absent: --device.",
)  # fmt: skip
@click.option("--output", "-o", type=OUTPUT, help="Device file to write.")
@click.option("--columns", default="", metavar="KEY=NAME,…", help="Other names of m, n, k, time, precision.")
@click.option("--unit", type=click.Choice(("ns", "us", "ms", "s")), default="us", show_default=True)
@click.option("--precision", type=click.Choice(("fp32", "bf16", "fp8")), default="bf16", show_default=True,
              help="Of all rows, without such a column.")  # fmt: skip
@click.option(
    "--leave-out", is_flag=True, help="Fit again without thirds of the shapes: an honest error, slowly."
)
def command(
    files: tuple[Path, ...],
    device: str,
    base: str | None,
    output: Path | None,
    columns: str,
    unit: str,
    precision: str,
    leave_out: bool,
) -> None:
    """Fit the constants of matrix products of a GPU to FILEs of measured ones.

    A file has a header with m, n, k and time, and perhaps precision, as a compute model `table` reads it. A fifth of
    the products is held out of the fit. What is written is a device of the compute model `gpu`.
    """
    from armillary.base.files import write_text
    from armillary.compute.gpu.device import load_gpu
    from armillary.evidence.calibrate.device_file import device_text
    from armillary.evidence.calibrate.gemm import calibrate, read_products

    gpu = load_gpu(base or device)
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    found, notes = read_products(list(files), _columns(columns), scale, precision)
    for note in notes:
        click.echo(f"warning: {note}", err=True)
    fits = {
        name: calibrate(
            gpu, name, measured, leave_out=leave_out, progress=lambda what: click.echo(what, err=True)
        )
        for name, measured in sorted(found.items())
    }
    show_table(_table(fits))
    if output:
        write_text(output, device_text(gpu, device, fits, ", ".join(each.name for each in files)))
        click.echo(f"Wrote {output}: platform.compute: {{model: gpu, device: {output}}}")


def _columns(text: str) -> Mapping[str, str]:
    from armillary.base.errors import InputError, nearest, one_of
    from armillary.compute.table_file import COLUMNS

    found: dict[str, str] = {}
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
        ("precision", "rows of 20 µs and more", "products", "mean error", "nine of ten")
    ):
        out.add_column(name, justify="left" if number < 2 else "right")
    for name, fitted in fits.items():
        _add(out, name, "fitted to", fitted.inside)
        _add(out, "", "held out", fitted.outside)
        for what, errors in fitted.groups.items():
            _add(out, "", f"without some {what}", errors)
    return out


def _add(out: Table, name: str, what: str, errors: Errors) -> None:
    if errors.count:
        out.add_row(
            name, what, f"{errors.count:,}", f"{100 * errors.mean:.1f} %", f"{100 * errors.worst:.1f} %"
        )
    else:
        out.add_row(name, what, "0", "-", "-")
