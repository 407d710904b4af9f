"""`armillary machine gemm`: time GEMMs with the compute model of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from armillary.cli.command import Command, option
from armillary.cli.machine import SUBCOMMANDS
from armillary.cli.options import json_option, machine_argument
from armillary.cli.outputs import say, show_table, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.compute import Times, Work
    from armillary.platform.model import Platform


@click.command(
    cls=Command,
    help=f"{SUBCOMMANDS['gemm']}\n\nA GEMM multiplies an (M, K) by a (K, N) matrix. If MACHINE has no compute "
    "model, the roofline is used. If the model has to extrapolate, the result says how far.",
    examples=(
        "armillary machine gemm hgx-h100 4096x4096x4096",
        "armillary machine gemm hgx-h100 8192x8192x1024 --precision fp8 --json -",
    ),
)
@machine_argument()
@click.argument("sizes", nargs=-1, required=True, metavar="MxNxK…")
@option("--precision", type=click.Choice(("fp32", "bf16", "fp8", "fp4")), default="bf16", show_default=True)
@option("--batch", type=click.IntRange(1), default=1, show_default=True, help="GEMMs per kernel.")
@json_option("Write the result as JSON, in ns.")
def command(machine: str, sizes: tuple[str, ...], precision: str, batch: int, json_file: Path | None) -> None:
    """Ask the model and print."""
    from armillary.compute.times import ask
    from armillary.platform import load_platform, with_roofline

    # A machine without a compute model is asked by the roofline.
    platform = with_roofline(load_platform(machine))
    work = _work(sizes, precision, batch)
    times = ask(platform, work)
    show_table(_table(platform, work, times))
    write_json(json_file, _rows(work, times))
    for note in times.notes:
        say(f"warning: {note}", err=True)


def _work(sizes: tuple[str, ...], precision: str, batch: int) -> Work:
    import math
    import re

    import numpy as np

    from armillary.base.errors import InputError
    from armillary.compute import Work
    from armillary.compute.gpu.gemm import ELEMENT
    from armillary.trace.gemm import Gemm

    gemms = []
    for text in sizes:
        # At most nine digits each; 0 is no size.
        match = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8})", text)
        if not match:
            raise InputError(
                f"got '{text}', expected the sizes of a GEMM as MxNxK, e.g. 4096x4096x4096, each from 1 to 999,999,999"
            )
        gemms.append((Gemm(int(match[1]), int(match[2]), int(match[3]), batch),))
    operations = [each.operations for (each,) in gemms]
    # The product of three such numbers may leave int64.
    if max(operations) >= 2**63:
        raise InputError(f"got {max(operations):.3g} operations in a GEMM, expected less than {2.0**63:.3g}")
    return Work(
        sizes,
        np.array(operations, np.int64),
        np.array([math.ceil(ELEMENT[precision] * each.elements) for (each,) in gemms], np.int64),
        (precision,) * len(sizes),
        tuple(gemms),
        # No recorded durations.
        np.zeros(len(sizes), np.int64),
    )


def _rows(work: Work, times: Times) -> list[dict[str, object]]:
    return [
        {
            "gemm": name,
            "precision": work.precisions[at],
            "batch": work.gemms[at][0].batch,
            "time_ns": float(times.ns[at]),
            # A rate of a kernel of no time is not known.
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
    for number, name in enumerate(("GEMM", "time", "rate", "of peak", "bound by", "extrapolated")):
        out.add_column(name, justify="left" if number in (0, 4) else "right")
    # Of one precision: all GEMMs of a call have the same.
    peak = Device.of(platform).peak_of(work.precisions[0])
    for at, (gemm,) in enumerate(work.gemms):
        ns = float(times.ns[at])
        rate = work.operations[at] / ns * 1e9 if ns else 0.0
        share = f"{100 * rate / peak:.1f} %" if peak and rate else "-"
        # 1: within what was measured.
        beyond = 1.0 if times.beyond is None else times.beyond[at]
        bound = times.bound[at] if times.bound else ""
        far = f"{beyond:.3g} times" if beyond > 1 else "no"
        out.add_row(str(gemm), format_time(ns), format_flops(rate), share, bound, far)
    return out
