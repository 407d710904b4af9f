"""How long kernels take on an NPU, as values: compute models and their options, overrides, jitter; and terms of a step.

Terms (`Terms`) slow a step besides its kernels and links; each can be switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from armillary.base.extension import ExtensionPoint
from armillary.base.hints import KeyPath, show
from armillary.base.units import format_time
from armillary.platform.limits import (
    COUNT,
    FLAG,
    LONGER,
    MOST_BYTES,
    POSITIVE,
    SEED,
    SHARE,
    SHARE_OR_NONE,
    TEXT,
    TIME,
    Choice,
    Kind,
    Maybe,
    Number,
    Rule,
    check,
    refuse,
    wrong_option,
)

SYSTOLIC_BUFFERS = ("ifmap", "filter", "ofmap")
"""SCALE-sim's names of the buffers of the left operand, the right one and the result."""
_ON_CHIP = Number(1, MOST_BYTES, whole=True)


class _Buffers:
    """Of a systolic array: bytes of all three, or None."""

    def __call__(self, value: object) -> str:
        if value is None:
            return ""
        # A GEMM has all three operands in buffers: a size for one alone would leave the others undefined.
        if not isinstance(value, Mapping) or set(value) != set(SYSTOLIC_BUFFERS):
            return f"got {value!r:.60}, expected a mapping of {', '.join(SYSTOLIC_BUFFERS)} to bytes"
        wrong = ((name, _ON_CHIP(size)) for name, size in value.items())
        # The first problem only: one message names one value.
        return next((f"{name}: {problem}" for name, problem in wrong if problem), "")


_FLOWS = Choice(("output", "weight", "input"))
_WORDS = Kind((list, tuple), "a list of words, at least one")
_OF_MODELS: dict[str, tuple[dict[str, Rule], dict[str, Rule]]] = {
    "roofline": ({}, {}),
    "gpu": ({"device": TEXT}, {"factors": Kind(Mapping, "a mapping"), "load": Choice(("sustained", "alone"))}),
    "tiled": ({"buffer": Number(above=True, whole=True)}, {}),
    "table": (
        {"file": TEXT},
        {"columns": Kind(Mapping, "a mapping"), "unit_ns": POSITIVE, "precision": Choice(("fp32", "bf16", "fp8"))},
    ),
    "systolic": (
        {"rows": COUNT, "columns": COUNT, "dataflow": _FLOWS, "clock": POSITIVE},
        {"arrays": COUNT, "stall": FLAG, "buffers": _Buffers()},
    ),
    "subprocess": ({"command": _WORDS}, {"timeout_ns": POSITIVE}),
}  # fmt: skip
"""Options that a built-in model needs, and those that it may have."""


def wrong_model_option(model: str, options: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return which option of a compute model is wrong and what; () and "" for none, or for another package's model."""
    # Models of other packages validate their own options when they are created.
    if model not in _OF_MODELS:
        return (), ""
    needed, more = _OF_MODELS[model]
    for name in needed:
        if name not in options:
            return (), f"missing key '{name}'"
    # `Kind` accepts an empty list and mixed types; a command needs at least one word of text.
    if model == "subprocess":
        words = options["command"]
        if (
            not isinstance(words, list | tuple)
            or not words
            or not all(isinstance(each, str) for each in words)
        ):
            return ("command",), f"got {words!r:.60}, expected {_WORDS.name}"
    return wrong_option(needed | more, options)


PRECISIONS = ("fp32", "bf16", "fp8", "fp4")
"""Precisions of GEMMs: values of the attribute ``precision`` of a compute node, ``bf16`` where it has none."""


@dataclass(frozen=True)
class Jitter:
    """Random spread of compute durations: `sigma` relative to the duration, 0.05 is 5 %."""

    sigma: float
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, sigma=SHARE, seed=SEED)


@dataclass(frozen=True)
class Kernels:
    """What kernels reach of an NPU in the roofline model.

    Attributes:
        compute: Share of the peak that GEMMs reach.
        memory: Share of the local memory bandwidth.
        overhead: ns that every kernel takes besides.
    """

    compute: float = 1.0
    memory: float = 1.0
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, compute=SHARE, memory=SHARE, overhead=TIME)


KERNEL_KINDS = ("gemm", "flops", "memory", "unknown")
"""Products of known shape; other operations, such as fused attention; bytes only; nothing but a recorded duration."""
FACTOR = Number(high=1e9, above=True)
"""Limits of a factor on a time."""
QUANTILE = Number(high=1e3, above=True)
"""Limits of a ratio of measured to predicted time."""
COMPUTE_MODELS = ExtensionPoint(
    "armillary.compute", "compute model", ("roofline", "gpu", "tiled", "table", "systolic", "subprocess")
)


@dataclass(frozen=True)
class Override:
    """What is known better about some kernels; exactly one of `duration`, `factor` and `efficiency` is given.

    Attributes:
        name: Pattern of their names, as of files: ``*.attend``.
        kind: Of what they do, see `armillary.compute.KINDS`; empty: any.
        duration: ns that each takes.
        factor: Times what the model says.
        efficiency: Share of the peaks that they reach in the roofline model.
    """

    name: str = "*"
    kind: str = ""
    duration: float | None = None
    factor: float | None = None
    efficiency: float | None = None

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(
            self, name=TEXT, kind=Choice(("", *KERNEL_KINDS)), duration=Maybe(TIME), factor=Maybe(FACTOR),
            efficiency=Maybe(SHARE),
        )  # fmt: skip
        # Two of them would leave open which applies first, e.g. whether `factor` scales `duration`.
        if sum(each is not None for each in (self.duration, self.factor, self.efficiency)) != 1:
            raise refuse(self, (), "expected exactly one of duration, factor and efficiency")


@dataclass(frozen=True)
class Interval:
    """Of 80 % of measured steps: `low` and `high` are measured over predicted times, `of` says which steps."""

    low: float
    high: float
    of: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, low=QUANTILE, high=QUANTILE, of=TEXT)
        # low == high is a valid interval: one measurement gives it.
        if self.low > self.high:
            raise refuse(self, (), f"got low {self.low} above high {self.high}, expected at most as much")


@dataclass(frozen=True)
class Compute:
    """The model that times compute nodes, and what overrides it.

    Attributes:
        model: ``roofline``, another built-in model, or one of another package; empty: their recorded durations.
        options: Of the model.
        overrides: The first that fits a kernel counts; they also hold for recorded durations.
        replay: Compute, communication and memory accesses take their recorded durations, whatever else is set.
        kernels: What kernels reach of the NPU.
        source: File, line and key of the setting, or empty.
        folder: What paths are relative to.
        uncertainty: How far measured steps lie from predicted ones; None: not known.
    """

    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    replay: bool = False
    kernels: Kernels = field(default_factory=Kernels)
    source: str = field(default="", compare=False)
    folder: Path = field(default=Path(), compare=False)
    uncertainty: Interval | None = None

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        options, overrides = Kind(Mapping, "a mapping"), Kind(tuple, "a tuple of Override")
        uncertainty = Kind(Interval, "an Interval or None", none=True)
        # Empty stands for recorded durations, which is no model and in no registry.
        model: Rule = Maybe(Choice(COMPUTE_MODELS), "")
        check(
            self, model=model, options=options, overrides=overrides, replay=FLAG,
            kernels=Kind(Kernels, "a Kernels"), uncertainty=uncertainty,
        )  # fmt: skip
        # After the kinds are known to be right: the rules of options index into a mapping.
        place, problem = wrong_model_option(self.model, self.options)
        if problem:
            raise refuse(self, ("options", *place), problem)
        for at, each in enumerate(self.overrides):
            if not isinstance(each, Override):
                raise refuse(self, ("overrides", at), f"got {show(each)}, expected an Override")

    @property
    def asked(self) -> bool:
        """Whether there is more to it than the roofline model, or recorded times."""
        return (self.modelled and self.model != "roofline") or (bool(self.overrides) and not self.replay)

    @property
    def modelled(self) -> bool:
        """Whether a model times compute nodes: one is chosen, and nothing is replayed."""
        return bool(self.model) and not self.replay


@dataclass(frozen=True)
class Terms:
    """Terms of a step, each 0 where it is off; see ``docs/how-to/interference.md``.

    Attributes:
        overlap_compute: Share by which a kernel takes longer while a collective moves data on its rank.
        overlap_processors: Processors (SMs) that a collective occupies while it moves data; kernels bound by
            computation lack them.
        overlap_traffic: Bytes that a collective moves through the memory for each byte that it sends; kernels bound by
            memory lack that bandwidth.
        overlap_communication: Share by which a collective takes longer while one of its ranks computes.
        communication: Share by which collectives and messages always take longer than alone.
        communication_inside: The same of those within a node only, besides.
        communication_between: The same of those between nodes only, besides.
        launch: ns between two kernels that a CPU can issue.
        straggler: Standard deviation of the speeds of ranks, relative to the mean.
        step_time: ns of an iteration outside of kernels.
        step_share: The same as a share of the rest.
    """

    overlap_compute: float = 0.0
    overlap_processors: float = field(default=0.0, kw_only=True)
    overlap_traffic: float = field(default=0.0, kw_only=True)
    overlap_communication: float = 0.0
    communication: float = 0.0
    communication_inside: float = field(default=0.0, kw_only=True)
    communication_between: float = field(default=0.0, kw_only=True)
    launch: float = 0.0
    straggler: float = 0.0
    step_time: float = 0.0
    step_share: float = 0.0

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        # Shares may be 0 (off) up to 100 %; times, numbers and communication have their own limits.
        rules = dict.fromkeys(TERM_TIMES, TIME) | dict.fromkeys(COMMUNICATION, LONGER) | NUMBERS
        check(self, **{each.name: rules.get(each.name, SHARE_OR_NONE) for each in fields(self)})

    @property
    def overlap(self) -> bool:
        """Whether computation and communication slow each other."""
        kernels = self.overlap_compute or self.overlap_processors or self.overlap_traffic
        return bool(kernels or self.overlap_communication)

    def communication_share(self, between: bool) -> float:
        """Return the share by which what is inside a node, or between nodes, takes longer than alone."""
        return self.communication + (self.communication_between if between else self.communication_inside)

    @property
    def slows_communication(self) -> bool:
        """Whether some collectives or messages take longer than alone."""
        return bool(self.communication or self.communication_inside or self.communication_between)

    @property
    def step(self) -> bool:
        """Whether an iteration takes time outside of kernels."""
        return bool(self.step_time or self.step_share)

    def on(self) -> dict[str, float]:
        """Return those that are on, by name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    def facts(self) -> dict[str, float]:
        """Return those that are on, by name and unit: ``overlap_compute_ratio``, ``launch_ns``."""
        return {f"{name}_{term_unit(name)}": value for name, value in self.on().items()}


TERM_TIMES = ("launch", "step_time")
"""Terms that are times."""
COMMUNICATION = ("communication", "communication_inside", "communication_between")
"""Terms that may more than double a time."""
PROCESSORS, TRAFFIC = Number(high=10_000), Number(high=100)
NUMBERS = {"overlap_processors": PROCESSORS, "overlap_traffic": TRAFFIC}
"""Terms that are plain numbers, and their rules; the others are shares."""


def term_unit(name: str) -> str:
    """Return the unit of a term, as keys of reports end."""
    return "ns" if name in TERM_TIMES else "number" if name in NUMBERS else "ratio"


def term_words(facts: Mapping[str, float]) -> str:
    """Return terms as people read them: "overlap compute 15 %, launch 5 µs"."""
    texts = []
    # The unit is the last part of the key: launch_ns, overlap_compute_ratio.
    for key, value in facts.items():
        name, _, of = key.rpartition("_")
        amount = (
            format_time(value) if of == "ns" else f"{value:g}" if of == "number" else f"{100 * value:g} %"
        )
        texts.append(f"{name.replace('_', ' ')} {amount}")
    return ", ".join(texts)
