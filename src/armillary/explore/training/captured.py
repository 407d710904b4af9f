"""A captured step on a machine, with the constants of a training software: the same as those of generated steps.

A software adds to kernels and collectives what it was measured to add (`armillary.explore.training.constants`). Which
one a program is trained with is seen from what it imported. The interval is that of the software's held-out steps, see
`armillary.explore.training.interval`; a share of the kernels that nobody knows a price of makes it wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.portable import exp, hypot
from armillary.base.text import on_one_line
from armillary.base.units import format_bytes, format_time
from armillary.capture.chakra import trace_of
from armillary.capture.log import Log
from armillary.capture.nodes import HostTimes
from armillary.capture.prices import unpriced
from armillary.capture.summary import assumptions
from armillary.compute.machine import Machine, machine_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import NORMAL
from armillary.explore.training.interval import deviation_on
from armillary.explore.training.parts import parts_of_run
from armillary.explore.training.software import NAMES, Software, software_on
from armillary.explore.training.step import NEUTRAL
from armillary.platform.files.native import load_platform
from armillary.platform.files.preset import merged
from armillary.platform.model import Platform
from armillary.trace import Trace

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline

CALLS = 8
"""Calls of PyTorch for one operation of a generated layer, whose time on the host was fitted: 4 layers of Llama-3 8B in
Megatron-core 0.16.1 (local specification, tp 8) make 1,119 calls, forward and backward, and generated ones are of 34
operations each."""
UNPRICED = 1.0
"""Standard deviation of ln(real / assumed) of a kernel that nobody knows: a factor of e."""
EXPERTS = ("all-to-all",)
"""Collectives that show that tokens go to experts, of which the interval knows more."""
HOST_LINK = 63.0
"""Bytes per ns of PCIe 5.0 x16 in one direction: 32 GT/s, 128 of 130 bits."""
NO_SOFTWARE = "none"
"""What adds nothing: kernels and collectives take what they take alone."""


@dataclass(frozen=True)
class CapturedStep:
    """A captured step, ready to be simulated.

    Attributes:
        logs: Of the ranks that were run.
        trace: Of all ranks.
        platform: The machine with the constants of the software.
        device: Name of the constants of its kernels; "": another model times them.
        software: What it is trained with; None: nothing is added.
        host: What the host takes.
        assumptions: Sentences: what nobody said and moves the answer.
    """

    logs: Sequence[Log]
    trace: Trace
    platform: Platform
    device: str
    software: Software | None
    host: HostTimes
    assumptions: tuple[str, ...]

    def described(self, timeline: Timeline, platform: Platform | None = None) -> Timeline:
        """Return a run of it, which now says its interval and what was assumed.

        Args:
            timeline: The run.
            platform: That it ran on, if not on `platform`.
        """
        used = platform or self.platform
        prices = unpriced(self.trace, used)
        info = timeline.info
        info["assumptions"] = [*info.get("assumptions", ()), *self.assumptions, *_unpriced(prices)]
        info["assumptions"] += _host(
            max(log.host_bytes for log in self.logs), timeline.total_ticks * info.get("tick_ns", 1)
        )
        if self.software is not None and used.terms == self.platform.terms:
            parts = parts_of_run(timeline, self.trace)
            wide = exp(NORMAL * self.deviation(parts, fsum(share for _, share in prices.values())))
            of = f"steps of {self.software.base or self.software.name}"
            info["uncertainty"] = {"low_ratio": 1 / wide, "high_ratio": wide, "of": of}
        return timeline

    def log_of(self, rank: int) -> Log:
        """Return what a rank does: the log of the one that was run and stands for it."""
        run = self.trace.about["captured"]["graphs"][int(self.trace.rank_graph[rank])]
        return next(log for log in self.logs if log.rank == run)

    def deviation(self, parts: Mapping[str, float], unknown: float = 0.0) -> float:
        """Return the standard deviation of ln(measured / predicted).

        Args:
            parts: Of the step, see `armillary.explore.training.parts`.
            unknown: Share of the time of kernels that has no price.
        """
        assert self.software is not None
        experts = any(each.type in EXPERTS for log in self.logs for each in log.communications)
        fitted = self.platform.collectives.fit is not None
        known = deviation_on(self.device, self.software, parts, mixture=experts, fitted=fitted)
        kernels = fsum(parts[name] for name in ("gemm", "attention", "other")) / fsum(parts.values())
        return hypot(known, UNPRICED * unknown * kernels)


def captured_step(
    logs: Sequence[Log], machine: Source | Machine, *, software: str = "", host_ns: int | None = None
) -> CapturedStep:
    """Return a captured step on a machine.

    Args:
        logs: Of the ranks that were run.
        machine: A preset, which may be counted (``64xdgx-h100``), a platform file or its content.
        software: Whose constants it takes, ``none`` for none; by default what the program imported.
        host_ns: What it takes the host to call an operator; None: what the software says.

    Raises:
        InputError: a name is wrong, the machine has another size, or what the other ranks do does not follow from
            these.
    """
    platform = machine.platform if isinstance(machine, Machine) else load_platform(machine)
    if (ranks := logs[0].ranks) != platform.npus:
        # Shapes and groups are those of the captured size: `trace extrapolate` would not know the script's plan.
        raise InputError(
            f"the program was captured as one of {ranks:,} ranks, but the machine has {platform.npus:,} NPUs; expected "
            f"as many: capture it again with --ranks {platform.npus}, or name a machine of {ranks:,} NPUs"
        )
    assumed = assumptions(logs)
    found: Software | None = None
    device = ""
    if software != NO_SOFTWARE and not platform.compute.modelled:
        assumed.append("nothing says how long kernels of this machine take: no software adds to them")
    elif software != NO_SOFTWARE:
        whole = machine if isinstance(machine, Machine) else machine_of(machine)
        device = whole.device
        found = software_on(software or usual_software(logs, whole), whole)
        if not software:
            assumed.append(f"software {found.name}: {found.title}; {_added(found.fitted.constants, device)}")
        if found.base:
            assumed.append(f"{found.name} takes the constants of {found.base}")
        assumed += whole.assumptions
        platform = load_platform(merged(whole.keys, found.fitted.constants.platform(device)))
    host = host_times(found.fitted.constants if found else NEUTRAL, host_ns)
    if not host.call:
        assumed.append("the host is ahead of the device; --host-time 5us shows what calling operators costs")
    elif found and host_ns is None:
        assumed.append(
            f"the host takes {host.call / 1e3:g} us to call an operator, as {found.name} was fitted"
        )
    return CapturedStep(logs, trace_of(logs, host=host), platform, device, found, host, tuple(assumed))


def host_times(constants: Constants, call_ns: int | None = None) -> HostTimes:
    """Return what the host takes with a software; `call_ns` says it for the call of an operator."""
    call = round(constants.issue * 1e3 / CALLS) if call_ns is None else call_ns
    return HostTimes(call, round(constants.synchronise * 1e3), round(constants.handshake * 1e3))


def usual_software(logs: Sequence[Log], machine: Machine) -> str:
    """Return the software that a program is written with, as its imports say."""
    named = [name for name in logs[0].frameworks if name in NAMES and name != "torchtitan"]
    if named:
        return named[0]
    # PyTorch's own parallelism, whatever shards the weights: steps of torchtitan are what was measured of it.
    compiled = any(log.compiled for log in logs)
    if machine.software == "maxtext":
        return machine.software
    return "torchtitan" if compiled else "fsdp2"


def _added(constants: Constants, device: str) -> str:
    """Return what a software adds on a device, in words."""
    titles = {"gemm": "GEMMs", "attention": "attention", "memory": "other kernels"}
    factors = constants.platform(device)["compute"]["factors"] if device else {}
    words = [f"{titles[name]} x {factor:.3g}" for name, factor in factors.items() if factor != 1]
    more = {"within": constants.communication_inside, "between": constants.communication_between}
    words += [
        f"collectives {where} nodes x {1 + constants.communication + share:.3g}"
        for where, share in more.items()
        if constants.communication + share
    ]
    return (
        f"it adds to what kernels take alone: {', '.join(words)}" if words else "it adds nothing to kernels"
    )


def _host(moved: int, step_ns: float) -> list[str]:
    """Return what copies between the host and the device would take, if the summary could show it: tenths of a %."""
    if moved / HOST_LINK < step_ns / 1000:
        return []
    return [
        f"copies between the host and the device, {format_bytes(moved)} of a rank, are as fast as its own memory; "
        f"PCIe 5.0 x16 takes {format_time(moved / HOST_LINK)} or more for them"
    ]


def _unpriced(prices: Mapping[str, tuple[int, float]]) -> list[str]:
    return [
        f"no price is known of {on_one_line(name)}, {count} times: its bytes alone time it, {share:.1%} of all kernels"
        for name, (count, share) in prices.items()
    ]
