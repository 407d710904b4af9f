"""From a module to a converted workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.errors import InputError
from armillary.convert.converted import Converted
from armillary.convert.groups import Groups
from armillary.convert.hlo.groups import Devices
from armillary.convert.hlo.lower import Lowering
from armillary.convert.hlo.module import Instruction, Module
from armillary.convert.hlo.ranks import trace_of

_MOST_RANKS = 1 << 20


def check_options(inputs: Sequence[object], unroll: int, trips: int) -> None:
    """Refuse more files than one, and counts below 0.

    Raises:
        InputError: there are.
    """
    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} files, expected one HLO module, which all devices run")
    for name, value in (("--unroll", unroll), ("--trips", trips)):
        if value < 0:
            raise InputError(f"{name} is {value}, expected at least 0")


def converted(
    module: Module, ranks: int | None, *, unroll: int, trips: int, in_order: bool,
    shared: Mapping[Instruction, int] | None = None, statements: tuple[str, ...] = (),
) -> Converted:  # fmt: skip
    """Return a graph for each rank; rank = replica · partitions + partition.

    Args:
        module: the module.
        ranks: number of devices; None: as the module says.
        unroll: instructions up to which a loop is unrolled.
        trips: iterations of a loop whose number the module does not tell.
        in_order: whether everything runs in the module's order but what is asynchronous.
        shared: instructions whose work so many devices share.
        statements: lines that are printed in any case.

    Raises:
        InputError: the module contradicts itself, or does not fit the number of ranks.
    """
    devices = _devices(module, ranks)
    groups = Groups(devices.ranks.size)
    # All ranks run the same steps; who communicates with whom is resolved rank by rank in `trace_of`.
    lowering = Lowering(module, devices, unroll=unroll, trips=trips, in_order=in_order, shared=shared or {})
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
        statements,
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
