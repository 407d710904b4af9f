"""What kernels and collectives measured alone do not show of a training step: few constants of a software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from armillary.compute.gpu.device import load_gpu


@dataclass(frozen=True)
class Constants:
    """Constants of a software on a device, each neutral by default.

    Attributes:
        sustained: Share of the clocks of a short measurement that a long run keeps.
        gemm: What GEMMs take, over the time that they take alone.
        attention: The same of fused attention.
        hopper: What it takes besides on Hopper, whose constants are those of FlashAttention-3: software that runs
            the kernels of the generation before reaches less there.
        memory: The same of kernels that are bound by memory: less if the software fuses them.
        launch: us that a kernel takes at least.
        handshake: us that the CPU takes over a message of a pipeline.
        issue: us that the CPU takes to issue an operation, where no graph does.
        issue_each: us that the CPU takes besides to issue each kernel of a loop over experts.
        gap: us that the device takes besides for each kernel of a loop over experts.
        synchronise: us that the CPU takes to read the token counts of experts, where it must.
        communication: Share by which collectives take longer than alone.
        communication_inside: The same within a node, besides.
        communication_between: The same between nodes, besides.
        overlap_compute: Share by which kernels take longer beside collectives.
        overlap_communication: Share by which collectives take longer beside kernels.
        overlap_processors: Processors that a collective takes from GEMMs beside it.
        overlap_traffic: Bytes through the memory for each byte that a collective sends.
        straggler: Standard deviation of the speeds of ranks.
        step: ms of a step outside of kernels.
    """

    sustained: float = 1.0
    gemm: float = 1.0
    attention: float = 1.0
    hopper: float = 1.0
    memory: float = 1.0
    launch: float = 0.0
    handshake: float = 0.0
    issue: float = 0.0
    issue_each: float = 0.0
    gap: float = 0.0
    synchronise: float = 0.0
    communication: float = 0.0
    communication_inside: float = 0.0
    communication_between: float = 0.0
    overlap_compute: float = 0.0
    overlap_communication: float = 0.0
    overlap_processors: float = 0.0
    overlap_traffic: float = 0.0
    straggler: float = 0.0
    step: float = 0.0

    def platform(self, device: str) -> dict[str, Any]:
        """Return these constants as keys of a platform: ``compute`` and ``terms``.

        Args:
            device: Name of the constants of kernels; "": another model times them, which factors do not reach.
        """
        attention = self.attention * (self.hopper if _family(device) == HOPPER else 1.0)
        compute = {
            "model": "gpu",
            "device": device,
            "sustained": _percent(self.sustained),
            # Six digits: a study file should read.
            "factors": {
                name: round(value, 6)
                for name, value in (("gemm", self.gemm), ("attention", attention), ("memory", self.memory))
            },
        }
        return ({"compute": compute} if device else {}) | {
            "terms": {
                "overlap": {
                    "compute": _percent(self.overlap_compute),
                    "communication": _percent(self.overlap_communication),
                    **self._resources(),
                },
                "communication": self._communication(),
                "launch": f"{self.launch:.4f} us",
                "straggler": _percent(self.straggler),
                "step": {"time": f"{self.step:.4f} ms"},
            },
        }

    def _resources(self) -> dict[str, float]:
        # Absent where they are off: a study file should read.
        given = {"processors": self.overlap_processors, "traffic": self.overlap_traffic}
        return {name: round(value, 4) for name, value in given.items() if value}

    def _communication(self) -> str | dict[str, str]:
        inside, between = (
            self.communication + more for more in (self.communication_inside, self.communication_between)
        )
        if inside == between:
            return _percent(inside)
        return {"inside": _percent(inside), "between": _percent(between)}

    def plan(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return a plan with these constants; what it says of the host itself stays.

        An empty ``host`` says that the host has no work. Graphs of parameter servers leave the CPU out.
        """
        found, pipeline = {**plan}, plan.get("pipeline", {})
        # ns: a pipeline's messages are short.
        if (wait := round(self.handshake * 1e3)) and pipeline.get("handshake") is None:
            found["pipeline"] = {**pipeline, "handshake": f"{wait} ns"}
        host = {name: f"{ns} ns" for name in HOST if (ns := round(getattr(self, name) * 1e3))}
        own, served = plan.get("host"), plan.get("data", {}).get("sharding") == "parameter-server"
        if host and not served and own != {}:
            found["host"] = {**host, **(own or {})}
        return found

    def changed(self, values: Mapping[str, float]) -> Constants:
        """Return these constants with some replaced."""
        # Constants are frozen: fitting makes many of them.
        return replace(self, **values)


HOST = ("issue", "issue_each", "gap", "synchronise")
"""Constants that are keys of the section ``host`` of a plan."""
TERMS = (
    "launch", "communication", "communication_inside", "communication_between", "overlap_compute",
    "overlap_communication", "overlap_processors", "overlap_traffic", "straggler", "step",
)  # fmt: skip
"""Constants that are terms of a platform, which network models that move messages do not have."""
NAMES = tuple(each.name for each in fields(Constants))


HOPPER = "h100-sxm"
"""The device from which all others of its generation take what they lack."""


def _family(device: str) -> str:
    """Return the device at the end of the chain that a device takes its constants from."""
    while device and (like := load_gpu(device).like):
        device = like
    return device


def _percent(share: float) -> str:
    return f"{100 * share:.4f} %"
