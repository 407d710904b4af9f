"""The engine: a trace and a platform in, a timeline out.

`simulate` chooses one of three loops: `physical` (shared ports), `messages` (profile physical over a network that moves
every message) and `astra_sim` (agrees with ASTRA-sim to the tick). All three yield a program and a run (`common`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import InputError, nearest, one_of
from armillary.platform.network import ASTRA_SIM_MODELS, NETWORK_MODELS

if TYPE_CHECKING:
    from collections.abc import Collection

    from armillary.base.document import Source
    from armillary.engine.common.lowered import Run, Simulated
    from armillary.engine.common.timeline import Timeline
    from armillary.platform.model import Platform
    from armillary.trace import Trace

__all__ = ["simulate"]

PROFILES = ("physical", "astra-sim")
MODELS_OF: dict[str, Collection[str]] = {"physical": NETWORK_MODELS, "astra-sim": ASTRA_SIM_MODELS}
"""Profile -> the network models that it has."""


def simulate(
    trace: Trace | str | Path,
    platform: Platform | Source,
    *,
    profile: str | None = None,
    fold: bool = True,
    network_model: str | None = None,
    messages: bool = False,
    finish_order: bool = False,
) -> Timeline:
    """Simulate a trace on a platform.

    Args:
        trace: One graph per NPU, or the prefix of the files of one.
        platform: The machine, or what `armillary.load_platform` takes: a preset, a file, or what that holds.
        profile: "physical": concurrent transfers share link bandwidth; "astra-sim": tick for tick what ASTRA-sim
            computes. 1 tick is 1 ns in both. None: what the platform's file says.
        fold: Simulate one rank of each class that provably behaves alike; the ticks are the same.
        network_model: "analytical": dimensions without contention but for the ports of NPUs; "loggops": messages take
            time of both ends only (LogGOPS); "congestion": they wait for the links that they cross, one on each at a
            time; "flow": they share links max-min fairly;
            "packet": they are cut into packets, as `Platform.packets` says; "ns3": ns-3 moves these (extra ns3); or a
            `NetworkModel` of another package by its name. None: what the platform's file says; if that says nothing,
            analytical where the network is given by dimensions, flow where it is a graph.
        messages: Move every message of every rank, in profile astra-sim in that program's order within a tick. Without,
            it is done where that order has an effect and the run is not too large; a warning says if it is.
        finish_order: In profile astra-sim, also find in which order ranks finish that do so at one tick
            (`Timeline.finish_place`), if that takes no more than a moment.

    Returns:
        The timeline of every rank.

    Raises:
        InputError: the trace does not fit the platform, or something in it cannot be simulated.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    from armillary.platform.model import Platform

    switches = {"fold": fold, "messages": messages, "finish_order": finish_order}
    if any(not isinstance(value, bool) for value in switches.values()):
        from armillary.base.kinds import check_kinds  # a file that the command does without

        check_kinds(switches, simulate.__annotations__)
    if not isinstance(platform, Platform):
        from armillary.platform.files.native import (
            platform_of,  # loads pydantic, which a Platform does without
        )

        platform = platform_of(platform)
    if isinstance(trace, str | Path):
        from armillary.base.allowed import SIMULATED
        from armillary.trace import load_trace

        trace = load_trace(trace, bytes_per_node=SIMULATED)
    check_trace(trace)
    profile = platform.profile if profile is None else profile
    # Profile astra-sim takes the dimensions of a platform and leaves its graph alone.
    graph = platform.topology is not None and profile == "physical"
    network_model = network_model or platform.network_model.name or ("flow" if graph else "analytical")
    check_available(profile, network_model)
    if graph and network_model == "analytical":
        raise InputError(
            f"{platform.source or 'platform'}: network model 'analytical' knows dimensions, not graphs; expected "
            f"{one_of([*NETWORK_MODELS][1:])}, or platform.network instead of platform.topology"
        )
    contention = network_model == "congestion"
    check_memory(trace, fold and not messages and network_model == "analytical")
    from armillary.engine.common.assumptions import (
        assumptions,
        memory_of,
        of_other_profile,
        unused_efficiency,
    )
    from armillary.engine.common.result import timeline_of
    from armillary.trace.trace import check_whole

    # A replay takes recorded times, also of communication, so missing members do no harm.
    if not platform.compute.replay:
        check_whole(trace)
    platform = check_terms(platform, profile, network_model)
    check_ports(platform, profile, network_model)
    found = [*of_other_profile(platform, profile), *trace.about.get("without_effect", ())]
    if platform.variation is not None and platform.variation.causes():
        found.append(
            f"{platform.source or 'platform'}: platform.variation has no effect on one step; "
            "`armillary run --samples` draws from it"
        )
    if profile == "physical":
        from armillary.engine.common.assumptions import without_effect

        found += without_effect(platform, network_model)
    if platform.storage and platform.storage.at and (profile != "physical" or network_model == "analytical"):
        what = f"network model {network_model}" if profile == "physical" else f"profile {profile}"
        found.append(
            f"{platform.source or 'platform'}: storage.at and .operations have no effect with {what}: NPUs divide the "
            "bandwidth, and messages are not slowed; expected a network model that moves messages, such as flow"
        )
        platform = replace(platform, storage=replace(platform.storage, at="", operations=0))
    if found:
        platform = replace(platform, warnings=(*platform.warnings, *found))

    lowered: Simulated
    run: Run
    said = trace.about
    if profile == "physical" and network_model != "analytical":
        from armillary.engine.messages import run_messages

        lowered, run, info = run_messages(trace, platform, network_model)
    elif profile == "physical":
        from armillary.engine.physical import run_physical

        lowered, run, info = run_physical(trace, platform, fold)
    else:
        from armillary.engine.astra_sim.settled import run_astra_sim
        from armillary.platform import astra_sim_view
        from armillary.trace.expand import expand_for

        # This engine reads listed ranks only: a grid is written out rank by rank.
        ranks = expand_for(trace, "profile astra-sim")
        platform = astra_sim_view(platform)
        program, run = run_astra_sim(
            ranks, platform, fold=fold, messages=messages, contention=contention, finish_order=finish_order
        )
        lowered, info = program, {"folded": fold and not program.listed}
    # The same for all engines: raises if a rank has nodes left, and says who waits for what.
    if not lowered.finished(run):
        from armillary.engine.common.diagnose import check_finished

        check_finished(lowered, run)
    about = {
        "profile": profile,
        "network_model": network_model,
        "folded": fold and network_model == "analytical",
        **assumptions(lowered, platform, profile, said),
        **memory_of(trace, platform),
    }
    if profile == "physical":
        # Known only after lowering: whether the roofline timed any kernel.
        platform = replace(platform, warnings=(*platform.warnings, *unused_efficiency(platform, info)))
    return timeline_of(lowered, run, platform, {**said, **about, **info})


def check_memory(trace: Trace, fold: bool) -> None:
    """Refuse a simulation that needs more memory than there is, before it begins.

    Raises:
        ShortageError: says how much it needs.
    """
    from armillary.base.allowed import SIMULATED, require

    # Of each class of ranks one is simulated, and classes have graphs of their own; without folding every rank is.
    nodes = sum(graph.n_nodes for graph in trace.graphs) if fold else trace.total_nodes
    require(
        nodes * SIMULATED,
        f"simulating {nodes:,} nodes{'' if fold else ' of all ranks'}",
        "fewer ranks or nodes" if fold else "fewer ranks or nodes, or folding and network model analytical",
    )


def check_trace(trace: object) -> None:
    """Refuse anything that is not a trace.

    Raises:
        InputError: names it and how to read one.
    """
    from armillary.base.hints import show
    from armillary.trace import Trace

    if not isinstance(trace, Trace):
        raise InputError(
            f"trace: got {show(trace)}, expected a Trace, as armillary.load_trace(PREFIX) returns"
        )


def check_available(profile: str, network_model: str) -> None:
    """Refuse a profile or network model that this version does not have.

    Raises:
        InputError: names it and what there is.
    """
    if profile not in PROFILES:
        raise InputError(
            f"profile '{profile}' is not available in this version; "
            f"expected {one_of(PROFILES)}{nearest(str(profile), PROFILES)}"
        )
    known = MODELS_OF[profile]
    if network_model not in known:
        # A model of the other profile is a likelier mistake than a misspelling.
        elsewhere = [name for name in PROFILES if network_model in MODELS_OF[name]]
        there = f" (profile {elsewhere[0]} has it)" if elsewhere else nearest(str(network_model), known)
        raise InputError(
            f"network model '{network_model}' is not available in this version in profile {profile}; "
            f"expected {one_of(known)}{there}"
        )


def check_ports(platform: Platform, profile: str, network_model: str) -> None:
    """Refuse slow ports where they would have no effect.

    Raises:
        InputError: says where they have one.
    """
    if platform.port_speed and (profile, network_model) != ("physical", "analytical"):
        raise InputError(
            f"{platform.source or 'platform'}: port_speed has no effect in profile {profile} with network model "
            f"{network_model}; expected profile physical and network model analytical"
        )


def check_terms(platform: Platform, profile: str, network_model: str) -> Platform:
    """Refuse terms and a fit where they would have no effect; a fit that a preset brought gives way with a warning.

    Returns:
        The platform, without such a fit.

    Raises:
        InputError: names the key and the models in which it has an effect, or what it needs and the machine lacks.
    """
    if profile == "physical" and network_model == "analytical":
        if platform.terms.overlap_processors or platform.terms.overlap_traffic:
            from armillary.engine.physical.terms.resources import check_resources

            check_resources(platform)
        return platform
    if (fit := platform.collectives.fit) and fit.preset:
        warning = (
            f"preset {fit.preset}: collectives take the network's bandwidths and latencies, not fit {fit.name}: "
            f"profile {profile}, network model {network_model}"
        )
        platform = replace(
            platform,
            collectives=replace(platform.collectives, fit=None),
            warnings=(*platform.warnings, warning),
        )
    source = platform.source or "platform"
    given = ["platform.collectives.fit"] if platform.collectives.fit else []
    given += [f"platform.terms.{name.replace('_', '.', 1)}" for name in platform.terms.on()]
    if given:
        raise InputError(
            f"{source}: {given[0]} has no effect in profile {profile} with network model {network_model}; expected "
            "profile physical and network model analytical, or no such key"
        )
    return platform
