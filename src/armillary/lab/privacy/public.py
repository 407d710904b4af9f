"""An attack that names a public model by the total of its gradients.

Replicas reduce one gradient for each parameter, once per step: the bytes that all groups of replicas reduce together,
divided by the width of a gradient, are the number of parameters of the model. A list of public models gives its name.
The attack needs no other trace, and no name, shape or number of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.privacy.evaluate import Setting, carried_out, obfuscated
from armillary.lab.privacy.facts import Circle, facts_of
from armillary.lab.privacy.machines import usual_machines
from armillary.lab.privacy.population import BATCH, PP, RANKS, SEQUENCE, TP, Configuration
from armillary.lab.privacy.surrogate import RECOMPUTE, SHARDING
from armillary.trace.columns import CollectiveType
from armillary.trace.trace import Trace
from armillary.workload.models.counts import parameters
from armillary.workload.models.read import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Parallel, Plan

PUBLIC = (
    "llama-2-7b", "llama-3-8b", "llama-2-13b", "turing-nlg-17b", "megatron-22b", "mixtral-8x7b", "llama-2-70b",
    "llama-3-70b", "gpt-3-175b", "llama-3-405b", "megatron-530b", "megatron-1t",
)  # fmt: skip
"""Decoders of presets whose numbers of parameters differ; two of them by 2 % only."""
PRIOR = 1 / len(PUBLIC)
"""Share of runs that a random guess names."""
PLAIN = "plain"
"""Name of the setting without obfuscation."""
WIDTH = 4
"""Bytes of a gradient: they are summed in fp32."""
REDUCING = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
_MICROBATCHES = 8
"""Most microbatches of a replica, so that traces stay small."""
_SURE = 1.959963984540054
"""Standard deviations on each side of the middle 95 % of a normal distribution."""


@dataclass(frozen=True)
class Named:
    """Success of the attack at one setting.

    Attributes:
        setting: Its name, or `PLAIN`.
        right: Runs whose model was named.
        runs: All runs.
    """

    setting: str
    right: int
    runs: int

    @property
    def share(self) -> float:
        """Share of the runs."""
        return self.right / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the share (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
        n, p, z = self.runs, self.share, _SURE
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        reach = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        # The share itself is inside, but for rounding.
        return max(0.0, min(p, middle - reach)), min(1.0, max(p, middle + reach))

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"setting": self.setting, "right": self.right, "runs": self.runs, "interval": self.interval}


def named(trace: Trace) -> str | None:
    """Return the public model whose number of parameters is nearest to that of a trace; None: nothing is reduced.

    In a run without replicas it mistakes other groups for them and is wrong.

    Raises:
        InputError: the trace cannot be read.
    """
    found = gradient_bytes(trace)
    if not found:
        return None
    count = found / WIDTH
    return min(PUBLIC, key=lambda name: abs(log(parameters(load_model(name)).total / count)))


def gradient_bytes(trace: Trace) -> float:
    """Return the bytes that the groups of replicas reduce, each group counted once; 0: there are none.

    The members of such a group are one replica of a stage apart, so members times distance times stages are all ranks.
    Of the groups for which that holds, those that reduce most are taken.
    """
    facts = facts_of(trace)
    circles = [circle for circle in facts.circles if circle.size > 1 and _reduced(circle) > 0]
    outer = [each for each in circles if each.size * each.stride * facts.stages == trace.n_ranks]
    if not outer:
        return 0.0
    best = max(outer, key=_reduced)
    return _reduced(best) * trace.n_ranks / best.size


def _reduced(circle: Circle) -> float:
    return sum(circle.sizes.get(int(kind), 0.0) for kind in REDUCING)


def draw_public(count: int, seed: int) -> list[tuple[str, Configuration]]:
    """Return `count` runs with several replicas of public models, all equally likely, with the names of the models."""
    random = np.random.default_rng([seed, len(PUBLIC)])
    found: list[tuple[str, Configuration]] = []
    while len(found) < count:
        name = PUBLIC[random.integers(len(PUBLIC))]
        model = load_model(name)
        assert isinstance(model, Decoder)
        # Drawn again until valid for this model: an invalid plan must not make its model rarer.
        one = None
        while one is None:
            one = _one(model, random)
        found.append((name, one))
    return found


def _one(model: Decoder, random: np.random.Generator) -> Configuration | None:
    def pick(values: tuple[int, ...]) -> int:
        return int(values[random.integers(len(values))])

    tp, pp, batch, microbatch = pick(TP), pick(PP), pick(BATCH), pick((1, 2, 4))
    sequence = min(pick(SEQUENCE), model.context)
    # Without FSDP, which reduces its gradients in every microbatch rather than once a step.
    sharding = SHARDING[random.integers(2)]
    recompute = RECOMPUTE[random.integers(2)]
    dp = RANKS // (tp * pp)
    microbatches, rest = divmod(batch, dp * microbatch)
    if dp == 1 or rest or not 1 <= microbatches <= _MICROBATCHES:
        return None
    try:
        plan = Plan(
            ranks=RANKS, batch=batch, microbatch=microbatch, sequence=sequence,
            parallel=Parallel(tp=tp, pp=pp, dp=dp), data=Data(sharding=sharding), recompute=recompute,
        )  # fmt: skip
        found = Configuration(model, plan)
        found.trace()  # heads that tp does not divide are refused here
    except InputError:
        return None
    return found


def name_public(
    runs: int,
    seed: int,
    settings: Sequence[Setting],
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[Named]:
    """Obfuscate runs of public models, and return how often the attack names them: in plain traces, then by setting.

    Args:
        runs: Number of runs to draw.
        seed: Seed of the runs and of all keys.
        settings: Strengths to compare.
        workers: Number of processes.
        progress: Called after each run with the number of runs done.
    """
    drawn = draw_public(runs, seed)
    tasks = [
        (name, one, f"{seed}-public-{number}", tuple(settings)) for number, (name, one) in enumerate(drawn)
    ]
    rows = carried_out(_right, tasks, workers, progress)
    names = [PLAIN, *(setting.name for setting in settings)]
    return [
        Named(name, sum(column), runs) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    ]


def _right(task: tuple[str, Configuration, str, tuple[Setting, ...]]) -> list[bool]:
    name, configuration, key, settings = task
    trace = configuration.trace()
    machines = usual_machines(trace.n_ranks)
    found = [named(trace) == name]
    for number, setting in enumerate(settings):
        made = obfuscated(trace, machines[: setting.machines], setting, f"{key}-{number}")
        found.append(named(made.trace) == name)
    return found
