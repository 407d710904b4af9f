"""The engine: a trace and a platform in, a timeline out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.errors import InputError, nearest, one_of

if TYPE_CHECKING:
    from armillary.engine.lowered import Simulated
    from armillary.engine.timeline import Timeline
    from armillary.platform.model import Platform
    from armillary.trace import Trace

__all__ = ["simulate"]

PROFILES = ("physical", "astra-sim")
NETWORK_MODELS = ("analytical",)


def simulate(
    trace: Trace,
    platform: Platform,
    *,
    profile: str = "physical",
    fold: bool = True,
    network_model: str = "analytical",
    messages: bool = False,
) -> Timeline:
    """Simulate a trace on a platform.

    Args:
        trace: One graph per NPU.
        platform: The machine.
        profile: "physical": whatever is active at the same time shares the wires; "astra-sim": tick for
            tick what ASTRA-sim computes. 1 tick is 1 ns in both.
        fold: Simulate one rank of each class that provably behaves alike; the ticks are the same.
        network_model: "analytical".
        messages: Move every message of the collectives instead of evaluating whole phases; same ticks, slower.

    Returns:
        The timeline of every rank.

    Raises:
        InputError: the trace does not fit the platform, or something in it cannot be simulated.
        StuckError: the simulation cannot finish; the message says who waits for what.
    """
    check_available(profile, network_model)
    from armillary.engine.diagnose import check_finished
    from armillary.engine.result import timeline_of

    lowered: Simulated
    said = trace.about
    if profile == "physical":
        from armillary.engine.physical import run_physical

        lowered, run, info = run_physical(trace, platform, fold)
    else:
        from armillary.engine.program import lower
        from armillary.engine.run import execute
        from armillary.platform import astra_sim_view
        from armillary.trace.expand import expand_for

        trace = expand_for(trace, "profile astra-sim")
        platform = astra_sim_view(platform)
        program = lower(trace, platform, fold_ranks=fold, messages=messages)
        lowered, run, info = program, execute(program), {}
    check_finished(lowered, run)
    about = {"profile": profile, "network_model": network_model, "folded": fold}
    return timeline_of(lowered, run, platform, {**said, **about, **info})


def check_available(profile: str, network_model: str) -> None:
    """Refuse a profile or network model that this version does not have.

    Raises:
        InputError: names it and what there is.
    """
    for value, known, what in (
        (profile, PROFILES, "profile"),
        (network_model, NETWORK_MODELS, "network model"),
    ):
        if value not in known:
            raise InputError(
                f"{what} '{value}' is not available in this version; expected {one_of(known)}{nearest(value, known)}"
            )
