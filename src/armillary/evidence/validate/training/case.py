"""A measured training step, and the study that predicts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.explore.training.step import Step
from armillary.platform.fields import first_problem
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


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
        apart: Why it is shown in a part of its own instead of among the rows of the set; "": it is not.
        assumed: What the row leaves out and the reader chose, a sentence each; shown in the table's notes.
        step: The step, where `machine` is none of `machines.MACHINES`.
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
    assumed: tuple[str, ...] = ()
    apart: str = ""
    step: Step | None = None

    def seconds(self) -> float:
        """Return the measured time of a step."""
        # ms to s where rows are times; else the amount of a step over its rate.
        return self.in_unit(self.measured) if self.amount is not None else self.measured / 1e3

    def in_unit(self, seconds: float) -> float:
        """Return what a step of `seconds` is in the unit of the set."""
        return self.amount / seconds if self.amount is not None else seconds * 1e3


def plan_of(case: Case) -> Plan:
    """Return the plan of a case.

    Raises:
        InputError: a key is wrong; a stranger wrote the numbers of its row.
    """
    # ranks of the plan are the GPUs of the row.
    try:
        return Plan.model_validate({"ranks": case.npus, **case.plan})
    except ValidationError as error:
        place, problem = first_problem(error)
        raise InputError(f"plan: {'.'.join(map(str, place))}: {problem or 'missing'}") from None


def gpt(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int) -> Decoder:
    """Return a GPT with learned positions, biases, layer norms, GeLU and a tied head.

    Raises:
        InputError: there is no such decoder: a size is too large, or the heads do not divide the width.
    """
    try:
        return _gpt(layers, hidden, heads, sequence, vocabulary)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"a GPT of {layers} layers, {hidden} wide: {key}: {first['msg']}") from None


def _gpt(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int) -> Decoder:
    # Sizes of the model that rows name; all else is the same in these papers.
    return Decoder(
        name=f"GPT {layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        context=sequence,
        learned_positions=sequence,
        tied=True,
        norm="layer",
        activation="gelu",
        attention=Attention(heads=heads, bias="all"),
        mlp=Mlp(size=4 * hidden, bias=True),
    )


def padded(vocabulary: int, tp: int) -> int:
    """Return a vocabulary as Megatron-LM pads it: to a multiple of 128 rows on each rank of tp."""
    # Rows of the table that each rank has, a multiple of 128.
    unit = 128 * tp
    return -(-vocabulary // unit) * unit


def megatron_flops(
    batch: int, sequence: int, layers: int, hidden: int, vocabulary: int, *, recompute: bool = True
) -> float:
    """Return FLOP of a step by equation 3 of arXiv 2104.04473, which counts the recomputed forward pass."""
    # The recomputed forward pass is a third more: 96 instead of 72.
    inner = 1 + sequence / (6 * hidden) + vocabulary / ((16 if recompute else 12) * layers * hidden)
    return (96 if recompute else 72) * batch * sequence * layers * hidden**2 * inner
