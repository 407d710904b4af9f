r"""Shares of the time of a run with failures: useful work, checkpoints, lost work, restarts, waiting.

Failures come as a Poisson process of rate r, at work as well as in checkpoints and restarts. After each one the job
restarts, which takes R without a failure (a failure during a restart begins it anew), and continues from the last
complete checkpoint. Work proceeds in segments: an interval of work t, then b during which the job stops for a
checkpoint; s = t + b. The checkpoint is complete w later, while work continues (w = 0 if it is blocking).

Failures are renewals: the time after one does not depend on the time before. Between the end of a restart and the next
failure there is a time X, exponential with mean 1/r. Checkpoint k is complete in it if X >= k s + w, so

* checkpoints that are kept between two failures: N = sum_k exp(-r (k s + w)) = exp(-r w) / (exp(r s) - 1),
* time from failure to failure: 1/r + (exp(r R) - 1) / r = exp(r R) / r, of which the second term is restarts,

and by the theorem of renewals and rewards the share of time that is useful is

    t N r / exp(r R) = t r exp(-r (w + R)) / (exp(r s) - 1).

With w = 0 that is the complete model of Daly ("A higher order estimate of the optimum checkpoint interval for restart
dumps", FGCS 22, 2006): run time = exp(R/M) M (exp((t+b)/M) - 1) T / t. Its best interval does not depend on
R or w: the derivative is 0 where 1 - exp(-r (t + b)) = r t.

With a limited number of spare nodes the job also waits, when more nodes are being repaired than there are spares. A
node is repaired in a mean time of m. While the job does not wait, nodes break at rate h; the number in repair is
then that of busy lines of a telephone exchange with S + 1 lines, and the job waits while all of them are busy: the
loss formula of Erlang, B(S + 1, h m), which holds whatever the distribution of repair times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.base import portable
from armillary.base.errors import InputError

MOST_SPARES = 1 << 20
"""More than any cluster has; the loss formula takes a step for each."""


@dataclass(frozen=True)
class Checkpoints:
    """How checkpoints are taken, in seconds.

    Attributes:
        blocking: Time for which the job stops for each.
        writing: Time after that until it is complete, while the job continues.
    """

    blocking: float
    writing: float = 0.0


@dataclass(frozen=True)
class Recovery:
    """What follows a failure, in seconds.

    Attributes:
        restart: Time to detect it, start again and load the checkpoint.
        spares: Number of spare nodes; None for as many as needed.
        repair: Mean time until a broken node is back.
        hardware: Share of failures that break a node.
    """

    restart: float
    spares: int | None = None
    repair: float = 0.0
    hardware: float = 1.0

    def __post_init__(self) -> None:
        if self.spares is not None and self.spares > MOST_SPARES:
            raise InputError(
                f"spares: got {self.spares:,}, expected at most {MOST_SPARES:,}, or none for as many as needed"
            )


@dataclass(frozen=True)
class Goodput:
    """Shares of the time of a run; they add up to 1."""

    useful: float
    checkpoints: float
    lost: float
    restarts: float
    waiting: float

    @property
    def parts(self) -> dict[str, float]:
        """Shares by title, for people."""
        return {
            "useful work": self.useful,
            "checkpoints": self.checkpoints,
            "lost work": self.lost,
            "restarts": self.restarts,
            "waiting for repair": self.waiting,
        }


def goodput(rate: float, interval: float, checkpoints: Checkpoints, recovery: Recovery) -> Goodput:
    """Return the shares of the time of a long run.

    Args:
        rate: Failures per second of the whole machine; 0: none.
        interval: Seconds of work between checkpoints.
        checkpoints: How they are taken.
        recovery: What follows a failure.

    Raises:
        InputError: writing a checkpoint takes longer than the time to the next.
    """
    stop, writing = checkpoints.blocking, checkpoints.writing
    segment = interval + stop
    if writing > segment * (1 + 1e-9):
        raise InputError(
            f"a checkpoint is written in {writing:,.4g} s, expected no more than the interval of {segment:,.4g} s"
        )
    # The limit of the formulas, which divide by the rate.
    if not rate:
        return Goodput(interval / segment, stop / segment, 0.0, 0.0, 0.0)
    waits = 0.0
    if recovery.spares is not None:
        waits = erlang(recovery.spares + 1, rate * recovery.hardware * recovery.repair)
    # Checkpoints kept per cycle. Exponents are negative, as exp(710) is beyond float64; expm1 keeps the digits where
    # failures are rare.
    kept = portable.exp(-rate * (writing + segment)) / -portable.expm1(-rate * segment)
    # The share between a restart and the next failure: 1/r seconds of each cycle.
    up = (1 - waits) * portable.exp(-rate * recovery.restart)
    useful, saved = interval * kept * rate * up, stop * kept * rate * up
    restarts = (1 - waits) * -portable.expm1(-rate * recovery.restart)
    # What is not kept of the time between restart and failure was lost.
    return Goodput(useful, saved, up - useful - saved, restarts, waits)


def erlang(lines: int, load: float) -> float:
    """Return Erlang's loss formula by its recursion: the share of time in which all `lines` are busy."""
    blocked = 1.0
    for line in range(1, lines + 1):
        # B(n) = a B(n-1) / (n + a B(n-1)); the closed form has factorials that overflow.
        blocked = load * blocked / (line + load * blocked)
    return blocked


def best_interval(rate: float, checkpoints: Checkpoints) -> float:
    """Return the seconds of work between checkpoints that maximize useful time; infinite without failures.

    The root x = r t of ``1 - exp(-(x + r b)) = x``; no shorter than writing takes.
    """
    if not rate:
        return math.inf
    # Checkpoints that cost nothing should be as frequent as writing allows.
    if not checkpoints.blocking:
        return max(checkpoints.writing, 0.0)
    # The left side is less than 1, so the root is; 200 halvings exhaust any float64.
    low, high, stop = 0.0, 1.0, rate * checkpoints.blocking
    for _ in range(200):
        middle = (low + high) / 2
        if -portable.expm1(-(middle + stop)) > middle:
            low = middle
        else:
            high = middle
    return max(low / rate, checkpoints.writing - checkpoints.blocking)


def young(rate: float, checkpoints: Checkpoints) -> float:
    """Return the interval of Young ("A first order approximation to the optimum checkpoint interval", CACM 1974)."""
    return math.sqrt(2 * checkpoints.blocking / rate) if rate else math.inf


def daly(rate: float, checkpoints: Checkpoints) -> float:
    """Return the interval of Daly's higher-order formula (2006)."""
    if not rate:
        return math.inf
    mean, stop = 1 / rate, checkpoints.blocking
    # Outside of the range of the series; Daly takes the mean time between failures.
    if stop >= 2 * mean:
        return mean
    x = stop / (2 * mean)
    return math.sqrt(2 * stop * mean) * (1 + math.sqrt(x) / 3 + x / 9) - stop
