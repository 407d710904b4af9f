"""ASTRA-sim's inputs, unchanged: run them and get the same ticks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
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
    from armillary.base.memory import SIMULATED
    from armillary.engine import simulate as run
    from armillary.platform.files.astra_sim import read_platform
    from armillary.trace import Trace, load_trace

    platform = read_platform(system, network, memory, comm_groups, cli)
    trace = (
        workload
        if isinstance(workload, Trace)
        else load_trace(workload, ranks=platform.npus, bytes_per_node=SIMULATED)
    )
    if not isinstance(workload, Trace) and (surplus := Path(f"{workload}.{platform.npus}.et")).exists():
        note = (
            f"{surplus.name}: ranks from {platform.npus} on are ignored, the network has {platform.npus} NPUs"
        )
        platform = replace(platform, warnings=(*platform.warnings, note))
    return run(trace, platform, profile=profile, fold=fold, network_model=network_model)
