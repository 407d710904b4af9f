"""A workload that takes as long as another one on given machines, and has nothing else in common with it.

A training step of a model drawn from the key is scaled until its times are those of the original. It depends on the
original only through the number of ranks and one time for each machine, so it cannot reveal more than these do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.base.units import format_time
from armillary.lab.obfuscation.keyed import Floats, generator
from armillary.lab.obfuscation.relabel import Draft, relabel
from armillary.lab.obfuscation.totals import kinds_of_work, scaled
from armillary.lab.privacy.balance import Balanced, simulate_on, solve
from armillary.lab.privacy.machines import Machine
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Parallel, Plan

DRAWS = 8
"""Workloads drawn at a time; those with times nearest to the wanted ones are scaled first."""
TRIES = 5
"""Times that `DRAWS` workloads are drawn."""
_ALIKE = 0.2
"""Difference of logarithms of times below which two workloads count as equally near."""
STARTS = (4.0, 2.0, 1.0)
"""Largest random factors of the kinds of work at the start, tried in this order, on top of the common factor."""
MOST = 100.0
"""Largest factor of a kind of work in the end."""
_ROUNDS = 4
_HEAD = 128
_AXIS = (1, 2, 4, 8)
SHARDING: tuple[Literal["ddp", "zero-1", "fsdp"], ...] = ("ddp", "zero-1", "fsdp")
RECOMPUTE: tuple[Literal["none", "full"], ...] = ("none", "full")


@dataclass(frozen=True, eq=False)
class _Drawn:
    draft: Draft
    ticks: Floats


def surrogate(ranks: int, machines: Sequence[Machine], ticks: Floats, tolerance: float, key: str) -> Balanced:
    """Return another workload that takes the wanted time on each machine.

    Args:
        ranks: Number of ranks.
        machines: Machines that can time kernels.
        ticks: Wanted time on each, (machines,).
        tolerance: Share by which it may differ.
        key: Key from which the workload is drawn.

    Raises:
        InputError: a machine cannot time kernels, or no workload that was drawn can take the wanted times.
    """
    for machine in machines:
        if not machine.platform.compute.model:
            raise InputError(
                f"machine {machine.name}: a surrogate has no recorded times, expected the peak of an NPU and the "
                "bandwidth of its memory"
            )
    nearest: list[_Drawn] = []
    for first in range(0, DRAWS * TRIES, DRAWS):
        drawn = [_near(each, machines, ticks) for each in _draws(ranks, machines, key, first)]
        # The sort is stable: among workloads that are about as near, the one drawn first is tried first.
        drawn.sort(key=lambda each: int(_distance(each, ticks) / _ALIKE))
        for number, each in enumerate(drawn, first):
            # The name of the stream decides what a key gives: another one would change every surrogate made so far.
            found = _fitted(each.draft, machines, ticks, tolerance, generator(key, "stand-in totals", number))
            if found is not None:
                return found
        nearest.append(min(drawn, key=lambda each: _distance(each, ticks)))
    best = min(nearest, key=lambda each: _distance(each, ticks))
    wanted, reached = (
        ", ".join(
            f"{format_time(int(time))} on {machine.name}"
            for time, machine in zip(times, machines, strict=True)
        )
        for times in (ticks, best.ticks)
    )
    raise InputError(
        f"no surrogate takes {wanted}: the nearest of {DRAWS * TRIES} takes {reached}; expected fewer machines, a "
        "larger tolerance, or level 3"
    )


def _fitted(
    draft: Draft, machines: Sequence[Machine], ticks: Floats, tolerance: float, draw: np.random.Generator
) -> Balanced | None:
    kinds, bound = kinds_of_work(draft), np.log1p(tolerance)
    limit = np.full(len(kinds), np.log(MOST))
    start, aim = draw.uniform(-1, 1, len(kinds)), draw.uniform(-0.6, 0.6, len(machines)) * bound
    for width in np.log(STARTS):
        found = solve(draft, machines, ticks, kinds, start * width, limit, aim, bound)
        if found is not None:
            return found
    return None


def _distance(one: _Drawn, ticks: Floats) -> float:
    return float(np.abs(np.log(one.ticks / ticks)).max())


def _draws(ranks: int, machines: Sequence[Machine], key: str, first: int) -> Iterator[_Drawn]:
    """Yield `DRAWS` workloads; the very last of all tries is as small as possible, for short times."""
    for number in range(first, first + DRAWS):
        draw = generator(key, "stand-in", number)
        trace = generate(*_workload(ranks, draw, smallest=number == DRAWS * TRIES - 1))
        draft, _ = relabel(trace, key)
        yield _Drawn(draft, _times(draft, machines))


def _workload(ranks: int, draw: np.random.Generator, *, smallest: bool) -> tuple[Decoder, Plan]:
    def pick(values: tuple[int, ...]) -> int:
        return int(values[draw.integers(len(values))])

    tp = 1 if smallest else pick(tuple(n for n in _AXIS if ranks % n == 0))
    pp = 1 if smallest else pick(tuple(n for n in _AXIS if ranks // tp % n == 0))
    dp = ranks // (tp * pp)
    # A multiple of 8, so that any tp of `_AXIS` divides the heads.
    heads = 8 * int(draw.integers(1, 13))
    hidden, sequence, microbatch = _HEAD * heads, pick((512, 1024, 2048, 4096)), pick((1, 2, 4))
    # Layers and microbatches in multiples of pp keep the pipeline even.
    microbatches = 1 if smallest else pp * pick((1, 2))
    model = Decoder(
        name="surrogate", layers=1 if smallest else pp * int(draw.integers(1, 9)), hidden=hidden,
        vocabulary=pick((32000, 50304, 128256)), context=sequence, tied=False, norm="rms", activation="swiglu",
        attention=Attention(heads=heads, kv_heads=8), mlp=Mlp(size=pick((2, 3, 4)) * hidden),
    )  # fmt: skip
    sharding = SHARDING[0 if dp == 1 else draw.integers(2 if pp > 1 else 3)]
    plan = Plan(
        ranks=ranks, batch=dp * microbatch * microbatches, microbatch=microbatch, sequence=sequence,
        parallel=Parallel(tp=tp, pp=pp, dp=dp), data=Data(sharding=sharding), recompute=RECOMPUTE[draw.integers(2)],
    )  # fmt: skip
    return model, plan


def _near(one: _Drawn, machines: Sequence[Machine], ticks: Floats) -> _Drawn:
    """Return the workload with all of its work scaled by one factor, so that its times are nearly the wanted ones."""
    for _ in range(_ROUNDS):
        # The geometric mean over the machines. Latencies do not scale, so one step is not enough.
        factor = float(np.exp(np.log(ticks / one.ticks).mean()))
        if abs(np.log(factor)) < 0.05:
            break
        draft = scaled(one.draft, dict.fromkeys(kinds_of_work(one.draft), factor))
        one = _Drawn(draft, _times(draft, machines))
    return one


def _times(draft: Draft, machines: Sequence[Machine]) -> Floats:
    return np.array([max(simulate_on(draft, machine).total_ticks, 1) for machine in machines], np.float64)
