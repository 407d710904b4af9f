"""ASTRA-sim 1.0 text workloads, with SimAI's and LIBRA's variants of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.base.errors import InputError, nearest, one_of
from armillary.convert.converted import Converted
from armillary.convert.text.layout import lay_out
from armillary.convert.text.loops import record_pass
from armillary.convert.text.ranks import trace_of
from armillary.convert.text.reader import Part, Workload, read
from armillary.convert.text.recorder import Recorder

_MOST_SCALE = 1e9
UNITS = {"ns": 1, "us": 1000}


def convert(
    inputs: Sequence[Path],
    *,
    npus: int | None = None,
    passes: int = 1,
    model_parallel: int | None = None,
    dims: str | None = None,
    time_unit: str = "ns",
    kind: str | None = None,
    comm_scale: float = 1.0,
    compute_scale: float = 1.0,
) -> Converted:
    """Convert a text workload.

    Args:
        inputs: one file.
        npus: Number of NPUs; by default that of --dims or of the header (all_gpus), else about 8.
        passes: Number of training steps.
        model_parallel: NPUs per model-parallel group; by default that of the header, else the first of --dims.
        dims: Sizes of the network dimensions, innermost first, such as 2,8,4. Collectives then name the dimensions
            they span (involved_dim) instead of their ranks (pg_name), and all ranks share one graph.
        time_unit: Unit of the times in the file, ns or us.
        kind: Parallelism kind, such as DATA, for a file that names none.
        comm_scale: Factor for the bytes of collectives, as the flag of ASTRA-sim 1.0.
        compute_scale: Factor for compute times, as the flag of ASTRA-sim 1.0.

    Raises:
        InputError: the file or an option is wrong.
    """
    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} files given, expected one text workload")
    if time_unit not in UNITS:
        raise InputError(f"--time-unit is '{time_unit}', expected {one_of(UNITS)}{nearest(time_unit, UNITS)}")
    for option, value in (("--ranks", npus), ("--passes", passes), ("--model-parallel", model_parallel)):
        if value is not None and value < 1:
            raise InputError(f"{option} is {value}, expected at least 1")
    for option, scale in (("--comm-scale", comm_scale), ("--compute-scale", compute_scale)):
        if not 0 <= scale <= _MOST_SCALE:
            raise InputError(f"{option} is {scale:g}, expected a number from 0 to {_MOST_SCALE:g}")
    workload = _scaled(read(Path(inputs[0]), UNITS[time_unit], kind), comm_scale, compute_scale)
    layout, notes = lay_out(workload, npus, model_parallel, _dims(dims))
    run = Recorder(workload, layout)
    # A layer issues a computation and a collective for each of three phases, at most twice.
    check_count(
        12 * passes * len(workload.layers),
        MOST_RECORDED,
        f"{workload.path}: nodes of {passes} passes",
        "fewer --passes",
    )
    # One recorder for all passes: forward layers of a pass wait for the gradients of the one before.
    for _ in range(passes):
        record_pass(run)
    if not run.builder.nodes:
        raise InputError(
            f"{workload.path}: nothing to run, expected times or collectives that {workload.kind} issues"
        )
    # The recorder has made the graph of one rank; the others differ in the numbers of their groups.
    trace, groups = trace_of(run.builder.nodes, run.scopes, layout, str(workload.path))
    facts = {"kind": workload.kind, "layers": len(workload.layers), "passes": passes}
    return Converted(trace, groups, (*workload.warnings, *notes, *run.left_out()), facts)


def _scaled(workload: Workload, comm: float, compute: float) -> Workload:
    if comm == compute == 1:
        return workload

    def part(of: Part) -> Part:
        return replace(of, ns=round(of.ns * compute), size=round(of.size * comm))

    layers = tuple(
        replace(layer, parts=(part(layer.parts[0]), part(layer.parts[1]), part(layer.parts[2])))
        for layer in workload.layers
    )
    # Their products may be more than any number that the file may hold.
    if any(max(each.ns, each.size) >= 2**62 for layer in layers for each in layer.parts):
        raise InputError(f"{workload.path}: a scaled size or time is 2^62 or more, expected smaller scales")
    return replace(workload, layers=layers)


def _dims(text: str | None) -> list[int]:
    if text is None:
        return []
    sizes = text.split(",")
    if not all(size.isascii() and size.isdigit() and 0 < int(size) < 10**6 for size in sizes):
        raise InputError(f"--dims is '{text}', expected sizes from 1, innermost first, such as 2,8,4")
    return [int(size) for size in sizes]
