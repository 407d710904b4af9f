"""ASTRA-sim's inputs, unchanged: run them and get the same ticks, and the same lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.platform.model import Platform
    from armillary.report.astra_log import ResultLog
    from armillary.trace import Trace

Source = str | Path | dict[str, Any]


def simulate(
    workload: str | Path | Trace,
    system: Source,
    network: Source,
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    network_model: str | None = None,
    *,
    profile: str = "astra-sim",
    fold: bool = True,
) -> Timeline:
    """Simulate an ASTRA-sim configuration; in profile ``astra-sim`` the ticks are that program's.

    Args:
        workload: Prefix of the trace files (``<prefix>.<rank>.et``), or a trace.
        system: System JSON: path or its content as a dict.
        network: Network YAML: path or dict.
        memory: Remote-memory JSON: path or dict; None: no remote memory.
        comm_groups: Communicator-group JSON: path or dict.
        cli: Flags of that program such as ``--num-queues-per-dim=2``.
        network_model: "analytical" (its congestion-unaware network; None: too) or "congestion" (its aware one).
        profile: "astra-sim", or "physical": the same machine and workload with wires that are shared.
        fold: Simulate one rank of each class that provably behaves alike; the ticks are the same.

    Returns:
        The timeline; ``finish_ticks`` has one int64 per rank, 1 tick = 1 ns.

    Raises:
        InputError: something in the input is wrong; the message says where.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.engine import simulate as run
    from armillary.platform.files.astra_sim import read_platform

    platform = read_platform(system, network, memory, comm_groups, cli)
    trace, platform = _loaded(workload, platform)
    return run(trace, platform, profile=profile, fold=fold, network_model=network_model)


def log(
    workload: str | Path | Trace,
    system: Source,
    network: Source,
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    network_model: str | None = None,
) -> ResultLog:
    """Simulate an ASTRA-sim configuration, and return what that program prints of it and writes to its log.

    The arguments are those of `simulate`. `ResultLog.text` has its lines;
    `armillary.report.astra_log.write_log_files` writes its folder of logs.

    Raises:
        InputError: as `simulate`; also if local memory is to be tracked and a node does not say what it writes.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.engine import simulate as run
    from armillary.platform.files.astra_sim import read_log_keys, read_platform
    from armillary.report.astra_log import result_log

    keys = read_log_keys(system)
    trace, platform = _loaded(workload, read_platform(system, network, memory, comm_groups, cli, logged=True))
    timeline = run(trace, platform, profile="astra-sim", network_model=network_model, finish_order=True)
    return result_log(timeline, trace, platform, issues=keys.issues, memory=keys.memory)


def _loaded(workload: str | Path | Trace, platform: Platform) -> tuple[Trace, Platform]:
    """Return the trace for a machine, and the machine with a warning about ranks that have no NPU."""
    from armillary.base.memory import SIMULATED
    from armillary.trace import Trace, load_trace

    if isinstance(workload, Trace):
        return workload, platform
    trace = load_trace(workload, ranks=platform.npus, bytes_per_node=SIMULATED)
    if (surplus := Path(f"{workload}.{platform.npus}.et")).exists():
        note = (
            f"{surplus.name}: ranks from {platform.npus} on are ignored, the network has {platform.npus} NPUs"
        )
        platform = replace(platform, warnings=(*platform.warnings, note))
    return trace, platform
