"""ASTRA-sim's inputs, unchanged: run them and get the same ticks, and the same lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.evidence.ns3_binary import Beside
    from armillary.platform.files.flags import TextFlags
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
        workload: Prefix of the trace files (``<prefix>.<rank>.et``), a trace, or a text workload (``.txt``) of
            ASTRA-sim 1.0.
        system: System JSON: path or its content as a dict; or ``.txt`` of version 1.0.
        network: Network YAML: path or dict; also of version 1.0.
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

    text, cli = _text_flags(workload, cli)
    platform = read_platform(system, network, memory, comm_groups, cli)
    trace, platform = _loaded(workload, platform, text)
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
    `armillary.report.astra_log.write_log_files` writes its folder of logs. Network models that ASTRA-sim's analytical
    networks do not have run in profile ``physical``: "flow", "packet", "ns3", and "credit", which is "packet" with
    protocol credit. A warning then says what the bandwidths of the file became.

    Raises:
        InputError: as `simulate`; also if local memory is to be tracked and a node does not say what it writes.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.engine import simulate as run
    from armillary.platform.files.astra_sim import read_log_keys, read_platform
    from armillary.platform.network import ASTRA_SIM_MODELS
    from armillary.report.astra_log import result_log

    keys = read_log_keys(system)
    text, cli = _text_flags(workload, cli)
    platform = read_platform(system, network, memory, comm_groups, cli, logged=True)
    trace, platform = _loaded(workload, platform, text)
    profile = "astra-sim" if network_model is None or network_model in ASTRA_SIM_MODELS else "physical"
    if profile == "physical":
        platform = replace(platform, warnings=(*platform.warnings, _converted(platform, str(network_model))))
    if network_model == "credit":
        from armillary.platform.model import Packets

        network_model, platform = "packet", replace(platform, packets=Packets("credit"))
    timeline = run(trace, platform, profile=profile, network_model=network_model, finish_order=True)
    return result_log(timeline, trace, platform, issues=keys.issues, memory=keys.memory)


def log_ns3(
    workload: str | Path | Trace,
    system: Source,
    config: str | Path,
    logical: Source,
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    network_model: str | None = None,
) -> tuple[str, ResultLog]:
    """Simulate inputs of ASTRA-sim's ns-3 back end; return the lines that it prints first, and the log.

    Args:
        workload: Prefix of the trace files, or a trace.
        system: System JSON: path or its content as a dict.
        config: The back end's config.txt, which names the physical topology.
        logical: JSON with ``logical-dims``: path or dict.
        memory: Remote-memory JSON: path or dict; None: no remote memory.
        comm_groups: Communicator-group JSON: path or dict.
        cli: Flags such as ``--num-queues-per-dim=2``.
        network_model: "packet" (None: too), "flow", "congestion" or "ns3".

    Raises:
        InputError: something in the input is wrong; the message says where.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.platform.files.ns3_config import read_ns3_machine

    machine = read_ns3_machine(system, config, logical, memory, comm_groups, cli)
    return machine.heading, _packets(workload, system, machine.platform, network_model, "ns-3")


def beside_ns3(
    binary: str | Path,
    workload: str | Path,
    system: str | Path,
    config: str | Path,
    logical: str | Path,
    memory: str | Path | None = None,
    comm_groups: str | Path | None = None,
    cli: Iterable[str] = (),
    network_model: str | None = None,
    *,
    timeout: str = "10 min",
) -> tuple[Beside, ResultLog]:
    """Simulate inputs of ASTRA-sim's ns-3 back end, run a build of it on the same files, and return both ends.

    The build is started in the current folder only with consent: ``with armillary.allow(programs=True):``, or its path
    in the user's configuration.

    Args:
        binary: Path of the build.
        workload: Prefix of the trace files.
        system: System JSON, as all others a path.
        config: The back end's config.txt.
        logical: JSON with ``logical-dims``.
        memory: Remote-memory JSON; None: no remote memory, and no flag for the build.
        comm_groups: Communicator-group JSON.
        cli: Flags such as ``--num-queues-per-dim=2``, for both.
        network_model: As of `log_ns3`.
        timeout: After which the build is ended, with all that it has started.

    Raises:
        ConsentError: nobody has allowed the build.
        InputError: as `log_ns3`; or the build fails, does not end, or prints other lines than upstream's.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.base.errors import InputError
    from armillary.base.units import parse_time
    from armillary.evidence.ns3_binary import Beside, allowed, run_binary

    try:
        seconds = parse_time(timeout) * 1e-9
    except ValueError as error:
        raise InputError(f"--ns3-timeout: {error}") from None
    # Refused before the simulation, which may take long.
    allowed(binary)
    cli = list(cli)
    _, log = log_ns3(workload, system, config, logical, memory, comm_groups, cli, network_model)
    ours = log.timeline.finish_ticks.tolist()
    named = {
        "workload": workload, "system": system, "network": config, "logical-topology": logical,
        "remote-memory": memory, "comm-group": comm_groups,
    }  # fmt: skip
    flags = [f"--{name}-configuration={value}" for name, value in named.items() if value is not None]
    theirs = run_binary(binary, [*flags, *cli], len(ours), seconds=seconds)
    return Beside(str(binary), tuple(ours), tuple(theirs)), log


def log_htsim(
    workload: str | Path | Trace,
    system: Source,
    network: Source,
    options: Sequence[str],
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    network_model: str | None = None,
    protocol: str = "tcp",
) -> tuple[str, ResultLog, str]:
    """Simulate inputs of ASTRA-sim's HTSim back end; return what it prints first, the log, and what it prints last.

    Args:
        workload: Prefix of the trace files, or a trace.
        system: System JSON: path or its content as a dict.
        network: Network YAML, for the number of ranks and the sizes of dimensions: path or dict.
        options: Htsim's own, as after ``--htsim_opts``: ``["-topo", "8nodes.topo"]``.
        memory: Remote-memory JSON: path or dict; None: no remote memory.
        comm_groups: Communicator-group JSON: path or dict.
        cli: Flags such as ``--num-queues-per-dim=2``.
        network_model: "packet" (None: too), "flow", "congestion" or "ns3".
        protocol: Of ``--htsim-proto``: "tcp", or "uet" for Ultra Ethernet.

    Raises:
        InputError: something in the input is wrong; the message says where.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.platform.files.htsim_machine import read_htsim_machine

    machine = read_htsim_machine(system, network, options, memory, comm_groups, cli, protocol)
    log = _packets(workload, system, machine.platform, network_model, "htsim")
    return machine.heading, log, machine.ending


def _packets(
    workload: str | Path | Trace, system: Source, platform: Platform, network_model: str | None, program: str
) -> ResultLog:
    """Simulate a machine of the files of a back end that moves packets."""
    from armillary.engine import simulate as run
    from armillary.platform.files.astra_sim import read_log_keys
    from armillary.report.astra_log import result_log

    keys, model = read_log_keys(system), network_model or "packet"
    note = f"network model {model} of profile physical stands for {program}: its ticks are not that program's"
    trace, platform = _loaded(workload, replace(platform, warnings=(note, *platform.warnings)))
    timeline = run(trace, platform, profile="physical", network_model=model, finish_order=True)
    return result_log(timeline, trace, platform, issues=keys.issues, memory=keys.memory)


def _converted(platform: Platform, network_model: str) -> str:
    """Return what another network model makes of the bandwidths of a network file."""
    from armillary.platform.model import ports

    rates = ", ".join(
        f"{each.name} {each.topology} of {each.size}: {each.bandwidth * 1e9 / 2**30:g} GiB/s of a link are "
        f"{each.bandwidth:.6g} GB/s, {port.out:.6g} GB/s of an NPU"
        for each, port in zip(platform.dimensions, ports(platform), strict=True)
    )
    return f"network model {network_model} is of profile physical, its ticks are not ASTRA-sim's; {rates}"


def _text_flags(workload: str | Path | Trace, cli: Iterable[str]) -> tuple[TextFlags | None, list[str]]:
    """Return the flags that a text workload obeys, None for any other, and those for the machine."""
    from armillary.platform.files.flags import read_text_flags

    cli = list(cli)
    text = isinstance(workload, str | Path) and Path(workload).suffix == ".txt"
    # A prefix of traces may end in .txt, too.
    if not text or Path(f"{workload}.0.et").exists():
        return None, cli
    return read_text_flags(cli)


def _of_text(path: Path, platform: Platform, flags: TextFlags) -> tuple[Trace, Platform]:
    """Return the trace of a text workload of ASTRA-sim 1.0 for a machine, and the machine with its groups."""
    from armillary.convert import front_end

    dims = ",".join(str(dimension.size) for dimension in platform.dimensions)
    made = front_end("text").convert([path], dims=dims, **flags._asdict())
    notes = (*platform.warnings, *(f"{path}: {warning}" for warning in made.warnings))
    return made.trace, replace(platform, groups={**platform.groups, **made.groups}, warnings=notes)


def _loaded(
    workload: str | Path | Trace, platform: Platform, flags: TextFlags | None = None
) -> tuple[Trace, Platform]:
    """Return the trace for a machine, and the machine with a warning about ranks that have no NPU."""
    from armillary.base.allowed import SIMULATED
    from armillary.trace import Trace, load_trace

    if isinstance(workload, Trace):
        return workload, platform
    if flags is not None:
        return _of_text(Path(workload), platform, flags)
    trace = load_trace(workload, ranks=platform.npus, bytes_per_node=SIMULATED)
    if (surplus := Path(f"{workload}.{platform.npus}.et")).exists():
        note = (
            f"{surplus.name}: ranks from {platform.npus} on are ignored, the network has {platform.npus} NPUs"
        )
        platform = replace(platform, warnings=(*platform.warnings, note))
    return trace, platform
