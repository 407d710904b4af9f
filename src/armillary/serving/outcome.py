"""What became of a load: times of each request, of what they consist, and what the replicas were used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.serving import columns as c
from armillary.serving.replica import Served
from armillary.serving.requests import Ints, Requests

Floats = NDArray[np.float64]
NS = 1e9
WAITS = {
    "queue": "waiting for a first step",
    "prefill": "from there to the first token",
    "transfer": "keys and values on their way",
    "room": "waiting for a first step where it decodes",
    "decode": "decoding",
    "interference": "while prompts of others lengthen steps",
    "preempted": "without blocks, and computing again",
    "failed": "lost with replicas that failed",
}
"""Part of the time of a request -> what it is; they add up to the time from arrival to last token."""


@dataclass(frozen=True)
class Quantiles:
    """Mean and percentiles of requests, in s; nan: there is no such request."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Moved:
    """How requests went from the pool that computes prompts to the one that decodes.

    Attributes:
        replica: (requests) Number of the replica that computed the prompt.
        sent: (requests) ns at which its prompt was computed, and keys and values left.
        there: (requests) ns at which these were with the replica that decodes.
        begun: (requests) ns of its first step there.
        bytes: (requests) Of its keys and values; 0: its only token was made with the prompt.
        replicas: What each replica that computes prompts did.
    """

    replica: Ints
    sent: Ints
    there: Ints
    begun: Ints
    bytes: Ints
    replicas: tuple[Served, ...]

    @property
    def most_between(self) -> int:
        """Most bytes at a time that have left the one pool and have no blocks in the other."""
        times = np.concatenate((self.begun, self.sent))
        # What ends at a time has left before anything begins then.
        order = np.argsort(times, kind="stable")
        return int(max(0, np.cumsum(np.concatenate((-self.bytes, self.bytes))[order]).max()))


@dataclass(frozen=True)
class Outcome:
    """What became of a load; arrays have a value for each request, in its order.

    Attributes:
        requests: The load, with the arrivals that a closed loop found.
        replica: (requests) Number of the replica that served it; of two pools of the one that decoded it, -1: none did.
        begun: (requests) ns of its first step, from the first arrival on as all times.
        first: (requests) ns of its first token.
        last: (requests) ns of its last token.
        preempted: (requests) How often it lost its blocks.
        hit: (requests) Tokens that it found in the prefix cache.
        interfered: (requests) ns by which prompts of others lengthened the steps of its tokens.
        stalled: (requests) ns between tokens with a preemption between them.
        replicas: What each replica did; of two pools those that decode.
        moved: What two pools did; None: there is one.
        failed: (requests) ns that failures of replicas cost it before its first token, and after; None: none may fail.
        there: ns for which replicas were there, of all; None: always.
        fleet: How many there may be.
        failures: Of replicas.
    """

    requests: Requests
    replica: Ints
    begun: Ints
    first: Ints
    last: Ints
    preempted: Ints
    hit: Ints
    interfered: Ints
    stalled: Ints
    replicas: tuple[Served, ...]
    moved: Moved | None = None
    failed: tuple[Ints, Ints] | None = None
    there: int | None = None
    fleet: int = 1
    failures: int = 0

    @cached_property
    def ttft(self) -> Floats:
        """(requests) s from arrival to first token."""
        return np.asarray((self.first - self.requests.arrival) / NS)

    @cached_property
    def tpot(self) -> Floats:
        """(requests) s per token after the first; nan where there is none."""
        more = self.requests.output - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(more > 0, (self.last - self.first) / NS / np.maximum(more, 1), np.nan))

    @cached_property
    def e2e(self) -> Floats:
        """(requests) s from arrival to last token."""
        return np.asarray((self.last - self.requests.arrival) / NS)

    @cached_property
    def waits(self) -> Mapping[str, Ints]:
        """Part of `WAITS` that there is -> (requests) ns; they add up to the time from arrival to last token."""
        own = self.moved
        ready, decoding = (own.sent, own.begun) if own else (self.first, self.first)
        between = {"transfer": own.there - own.sent, "room": own.begun - own.there} if own else {}
        early, late = self.failed or (0 * self.last, 0 * self.last)
        lost = {"failed": early + late} if self.failed else {}
        return {
            "queue": self.begun - self.requests.arrival - early,
            "prefill": ready - self.begun,
            **between,
            "decode": self.last - decoding - self.interfered - self.stalled - late,
            "interference": self.interfered,
            "preempted": self.stalled,
            **lost,
        }

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last token."""
        return float(self.last.max()) / NS

    @property
    def output_rate(self) -> float:
        """Output tokens per s, of all replicas."""
        return float(self.requests.output.sum()) / self.duration_s

    @property
    def cache_use(self) -> tuple[float, float]:
        """Mean over time and peak of the share of blocks in use, over all replicas."""
        held = took = 0.0
        for each in self.replicas:
            spans = (each.steps[:, c.L_END] - each.steps[:, c.L_START]).astype(np.float64)
            held += float((spans * each.steps[:, c.L_BLOCKS]).sum()) / each.capacity
            took += float(spans.sum())
        return held / took if took else 0.0, max(each.most_blocks / each.capacity for each in self.replicas)

    @property
    def there_share(self) -> float:
        """Of all replicas, the share of the time for which they were there."""
        return 1.0 if self.there is None else self.there / NS / self.duration_s / self.fleet

    @property
    def busy(self) -> float:
        """Share of the time in which replicas work on a step."""
        return self.busy_share(self.replicas)

    def busy_share(self, replicas: Sequence[Served]) -> float:
        """Return the share of the time in which some of the replicas work on a step."""
        took = sum(int((each.steps[:, c.L_END] - each.steps[:, c.L_START]).sum()) for each in replicas)
        there = self.duration_s * len(replicas) if self.there is None else self.there / NS
        return took / NS / there

    def good(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Return (requests) whether a request meets each limit, in s, of ``ttft``, ``tpot`` and ``e2e``."""
        found = np.ones(len(self.requests), bool)
        for name, most in limits.items():
            # A single token has no time per token to miss.
            found &= ~(getattr(self, name) > most)
        return found


def quantiles(values: Floats) -> Quantiles:
    """Return mean and percentiles, linear between values, of those that are numbers."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Quantiles(*[float("nan")] * 4)
    return Quantiles(float(known.mean()), *(float(np.percentile(known, each)) for each in (50, 90, 99)))


def joined(requests: Requests, served: Sequence[Served], shares: Sequence[Ints]) -> Outcome:
    """Return the outcome of a load of which each replica served a share.

    Args:
        requests: The load.
        served: By each replica.
        shares: (replicas) Numbers of its requests.
    """
    n = len(requests)

    def of(values: Sequence[Ints]) -> Ints:
        found = np.zeros(n, np.int64)
        for mine, each in zip(shares, values, strict=True):
            found[mine] = each
        return found

    arrival = of([each.requests.arrival for each in served])
    return Outcome(
        replace(requests, arrival=arrival),
        of([np.full(len(mine), number, np.int64) for number, mine in enumerate(shares)]),
        of([each.begun for each in served]),
        of([each.first for each in served]),
        of([each.last for each in served]),
        of([each.preempted for each in served]),
        of([each.hit for each in served]),
        of([each.interfered for each in served]),
        of([each.stalled for each in served]),
        tuple(served),
    )
