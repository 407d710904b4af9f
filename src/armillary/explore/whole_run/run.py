"""A whole training run with failures: steps, days, NPU years, energy and money."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import fsum

from armillary.base.errors import InputError
from armillary.explore.cost.measures import HOURS_PER_YEAR
from armillary.explore.whole_run.failures import Failures
from armillary.explore.whole_run.goodput import Checkpoints, Goodput, Recovery, best_interval, goodput

STATE_BYTES = 14
"""Of a parameter in a checkpoint of mixed-precision Adam: weights in bf16 (2), in fp32 (4), two moments in fp32 (8).

Megatron-LM wrote 13.8 TB for 1.008e12 parameters (arXiv 2104.04473, section 5.10): 13.7 bytes.
"""
RUNNING_BYTES = 18
"""Of a parameter while it is trained: the same and gradients in fp32 (arXiv 1910.02054, section 3.1: 16 with bf16)."""


@dataclass(frozen=True)
class Work:
    """Work of a run, and its size on a machine.

    Attributes:
        npus: Number of NPUs that work.
        seconds: Time without failures and checkpoints.
        steps: Optimizer steps, 0 if unknown.
    """

    npus: int
    seconds: float
    steps: float = 0.0


@dataclass(frozen=True)
class WholeRun:
    """A run with failures.

    Attributes:
        work: Work of the run.
        rate: Failures per second of the machine; 0: none.
        interval: Seconds of work between checkpoints; infinite: none are taken.
        checkpoints, recovery: As assumed.
        goodput: Shares of time.
        npus: NPUs of the machine, spare nodes included.
    """

    work: Work
    rate: float
    interval: float
    checkpoints: Checkpoints
    recovery: Recovery
    goodput: Goodput
    npus: int

    @property
    def seconds(self) -> float:
        """Expected seconds of the run; infinite if it gets nowhere."""
        return self.work.seconds / self.goodput.useful if self.goodput.useful else math.inf

    @property
    def npu_years(self) -> float:
        """NPU years of the whole machine."""
        return npu_years(self.npus, self.seconds)

    @property
    def failures(self) -> float:
        """Expected failures of the run; none occur while it waits for a repair."""
        return self.rate * self.seconds * (1 - self.goodput.waiting) if self.rate else 0.0


def from_steps(npus: int, step_seconds: float, tokens_per_step: float, tokens: float) -> Work:
    """Return the work of so many tokens in whole steps.

    Raises:
        InputError: there are too many of them to be counted.
    """
    if math.isinf(tokens / tokens_per_step):
        raise InputError(
            f"{tokens:g} tokens in steps of {tokens_per_step:g}: expected steps that can be counted"
        )
    # The last step is a whole one, too.
    steps = math.ceil(tokens / tokens_per_step)
    return Work(npus, steps * step_seconds, steps)


def from_flops(npus: int, flops: float, rate: float) -> Work:
    """Return the work of `flops` operations at `rate` operations per second and NPU."""
    return Work(npus, flops / rate / npus)


def npu_years(npus: float, seconds: float) -> float:
    """Return NPU years, of 365.25 days."""
    return npus * seconds / 3600 / HOURS_PER_YEAR


def whole_run(
    work: Work,
    failures: Failures | None,
    checkpoints: Checkpoints,
    recovery: Recovery,
    interval: float | None = None,
) -> WholeRun:
    """Return a run with failures; `interval` None: the best one, or the whole run if that is shorter.

    Raises:
        InputError: writing a checkpoint takes longer than the time to the next, or checkpoints of no length have no
            best interval.
    """
    rate = fsum(failures.rates(work.npus).values()) if failures else 0.0
    if failures:
        share = failures.hardware_share(work.npus)
        # Which failures break a node follows from the components, not from the caller.
        recovery = Recovery(recovery.restart, recovery.spares, recovery.repair, share)
    if interval is not None and not interval > 0:
        raise InputError(f"interval: got {interval} s, expected more than 0, or none for the best one")
    if interval is None:
        interval = best_interval(rate, checkpoints)
        # Beyond the end of the run there is nothing left to save.
        if rate:
            interval = min(interval, work.seconds)
    if interval == 0:
        raise InputError("checkpoints take no time, so the best interval is 0: expected an interval")
    never = math.isinf(interval)
    found = Goodput(1.0, 0.0, 0.0, 0.0, 0.0) if never else goodput(rate, interval, checkpoints, recovery)
    # Spare nodes are paid for, whether or not they are ever used.
    spare = (recovery.spares or 0) * (failures.npus_per_host if failures else 0)
    return WholeRun(work, rate, interval, checkpoints, recovery, found, work.npus + spare)
