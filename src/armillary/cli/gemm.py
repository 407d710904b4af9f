"""`armillary platform gemm`: ask the compute model of a machine for matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from armillary.cli.outputs import show_table

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.compute import Times, Work
    from armillary.platform.model import Platform


@click.command("gemm")
@click.argument("file", type=click.Path(), metavar="FILE|PRESET")
@click.argument("sizes", nargs=-1, required=True, metavar="MxNxK…")
@click.option("--precision", type=click.Choice(("fp32", "bf16", "fp8")), default="bf16", show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Products in a kernel.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in ns.")
def command(file: str, sizes: tuple[str, ...], precision: str, batch: int, as_json: bool) -> None:
    """Time matrix products of (M, K) with (K, N) by the compute model of a machine.

    Without a model in FILE it is the roofline. A product that the model had to extrapolate to says how far.
    """
    import json

    from armillary.compute.times import ask
    from armillary.platform import load_platform, with_roofline

    platform = with_roofline(load_platform(file))
    work = _work(sizes, precision, batch)
    times = ask(platform, work)
    if as_json:
        click.echo(json.dumps(_rows(work, times), indent=2))
        return
    show_table(_table(platform, work, times))
    for note in times.notes:
        click.echo(f"warning: {note}", err=True)


def _work(sizes: tuple[str, ...], precision: str, batch: int) -> Work:
    import re

    import numpy as np

    from armillary.base.errors import InputError
    from armillary.compute import Work
    from armillary.trace.gemm import Gemm

    products = []
    for text in sizes:
        match = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})", text)
        if not match:
            raise InputError(f"got '{text}', expected the sizes of a product as MxNxK, e.g. 4096x4096x4096")
        products.append((Gemm(int(match[1]), int(match[2]), int(match[3]), batch),))
    element = {"fp32": 4, "bf16": 2, "fp8": 1}[precision]
    operations = [each.operations for (each,) in products]
    if max(operations) >= 2**63:
        raise InputError(
            f"got {max(operations):.3g} operations in a product, expected less than {2.0**63:.3g}"
        )
    return Work(
        sizes,
        np.array(operations, np.int64),
        np.array([element * each.elements for (each,) in products], np.int64),
        (precision,) * len(sizes),
        tuple(products),
        np.zeros(len(sizes), np.int64),
    )


def _rows(work: Work, times: Times) -> list[dict[str, object]]:
    return [
        {
            "gemm": name,
            "precision": work.precisions[at],
            "batch": work.products[at][0].batch,
            "time_ns": float(times.ns[at]),
            "flops_per_s": float(work.operations[at] / times.ns[at] * 1e9) if times.ns[at] else None,
            "bound": times.bound[at] if times.bound else "",
            "beyond_ratio": 1.0 if times.beyond is None else float(times.beyond[at]),
        }
        for at, name in enumerate(work.names)
    ]


def _table(platform: Platform, work: Work, times: Times) -> Table:
    from rich.table import Table

    from armillary.base.units import format_flops, format_time
    from armillary.compute import Device

    out = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(("product", "time", "rate", "of peak", "bound by", "extrapolated")):
        out.add_column(name, justify="left" if number in (0, 4) else "right")
    peak = Device.of(platform).peak_of(work.precisions[0])
    for at, (product,) in enumerate(work.products):
        ns = float(times.ns[at])
        rate = work.operations[at] / ns * 1e9 if ns else 0.0
        share = f"{100 * rate / peak:.1f} %" if peak and rate else "-"
        beyond = 1.0 if times.beyond is None else times.beyond[at]
        bound = times.bound[at] if times.bound else ""
        far = f"{beyond:.3g} times" if beyond > 1 else "no"
        out.add_row(str(product), format_time(ns), format_flops(rate), share, bound, far)
    return out
