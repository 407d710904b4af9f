"""A measured training step, and the study that predicts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from armillary.workload.models.schema import Decoder


@dataclass(frozen=True)
class Case:
    """A row of a set of measurements.

    Attributes:
        label: Of the row.
        group: By which errors are summed up: a model or a device.
        measured: In the unit of the set, above 0.
        machine: Name of a machine of `machines.MACHINES`.
        npus: How many of them.
        model: What is trained; None: it cannot be described, see `reason`.
        plan: ``workload.generate`` of the study without its model.
        stack: The software, by the name of its constants.
        amount: What a step handles, in units of ``measured`` x s: FLOP or tokens per GPU; None: `measured` is in ms.
        reason: Why there is no prediction.
        facts: What the fit may leave out: device, model, GPUs.
    """

    label: str
    group: str
    measured: float
    machine: str
    npus: int
    model: Decoder | None
    plan: dict[str, Any]
    stack: str
    amount: float | None = None
    reason: str = ""
    facts: dict[str, str] = field(default_factory=dict)

    def seconds(self) -> float:
        """Return the measured time of a step."""
        return self.in_unit(self.measured) if self.amount is not None else self.measured / 1e3

    def in_unit(self, seconds: float) -> float:
        """Return what a step of `seconds` is in the unit of the set."""
        return self.amount / seconds if self.amount is not None else seconds * 1e3
