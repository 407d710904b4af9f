"""TensorFlow and JAX programs, as XLA HLO text: one file, the module that all devices run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.convert.converted import Converted
from armillary.convert.groups import Groups
from armillary.convert.hlo.groups import Devices
from armillary.convert.hlo.lower import Lowering
from armillary.convert.hlo.module import Module
from armillary.convert.hlo.parse import parse
from armillary.convert.hlo.ranks import trace_of
from armillary.convert.hlo.source import read

_MOST_RANKS = 1 << 20


def convert(
    inputs: Sequence[Path],
    *,
    ranks: int | None = None,
    unroll: int = 200_000,
    trips: int = 1,
    in_order: bool = False,
) -> Converted:
    """Convert a module to a graph for each rank; rank = replica · partitions + partition.

    Computations get FLOPs (``num_ops``) and bytes (``tensor_size``), which the roofline model times.

    Args:
        inputs: one file of HLO text.
        ranks: Number of devices, a multiple of the module's partitions; by default partitions times replicas.
        unroll: Instructions up to which a loop is unrolled; a longer one is its body once, with all its costs.
        trips: Iterations of a loop whose number the module does not tell.
        in_order: Run everything in the module's order but what is asynchronous (-start … -done).

    Raises:
        InputError: the file is not HLO text, contradicts itself, or does not fit the number of ranks.
    """
    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} files, expected one HLO module, which all devices run")
    for name, value in (("--unroll", unroll), ("--trips", trips)):
        if value < 0:
            raise InputError(f"{name} is {value}, expected at least 0")
    module = parse(read(inputs[0]))
    devices = _devices(module, ranks)
    groups = Groups(devices.ranks.size)
    # All ranks run the same steps; who communicates with whom is resolved rank by rank in `trace_of`.
    lowering = Lowering(module, devices, unroll=unroll, trips=trips, in_order=in_order)
    program = lowering.run()
    warnings = program.warnings
    # Without a schedule the order of the text is only one that the dependencies allow.
    if in_order and module.attributes.get("is_scheduled") != "true":
        warnings.append(f"{module.source.name}: the module is not scheduled: the order is that of the text")
    return Converted(
        trace_of(program, groups),
        groups.ranks,
        tuple(warnings),
        {
            "module": module.name,
            "partitions": devices.partitions,
            "replicas": devices.replicas,
            "flops_per_rank": sum(step.ops for step in program.steps),
        },
    )


def _devices(module: Module, ranks: int | None) -> Devices:
    source = module.source
    counts = []
    for key in ("replica_count", "num_partitions"):
        text = module.attributes.get(key, "1")
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
            source.fail(0, f"{key}={text}, expected a number above 0")
        counts.append(int(text))
    replicas, partitions = counts
    if ranks is not None:
        if ranks < 1 or ranks % partitions:
            raise InputError(
                f"--ranks is {ranks}, expected a multiple of the module's {partitions} partitions"
            )
        replicas = ranks // partitions
    if replicas * partitions > _MOST_RANKS:
        source.fail(
            0, f"{replicas} replicas of {partitions} partitions, expected at most {_MOST_RANKS} devices"
        )
    return Devices(source, replicas, partitions)
