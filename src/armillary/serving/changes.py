"""Replicas that fail and are repaired, and replicas that are started and stopped as the load asks for.

Failures are drawn for each replica by itself: it works for a time that is exponential, then is lost with its cache, and
is back after the repair. How many replicas run follows Kubernetes' horizontal autoscaler: it looks now and then, wants
as many as give each no more than so many requests, starts what is missing at once, and stops what none of its looks
wanted for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.units import format_time, parse_time, whole
from armillary.serving.requests import MOST_NS

FAIL = {"mtbf": "", "repair": ""}
SCALE = {"target": "", "min": "1", "start": "60s", "every": "15s", "hold": "5min"}
"""Key -> its default; "": it must be given. `every` and `hold` are the defaults of Kubernetes' autoscaler."""
EXAMPLES = {"fail": "mtbf=24h,repair=10min", "scale": "target=32,min=1,start=60s"}
MOST_TARGET = 10**6
MOST_FAILURES, MOST_LOOKS = 10_000, 100_000
"""Of one load: after each failure a replica begins anew, which takes some ms."""
MOST_RETURNED = 2_000_000
"""Requests that go back to the router; each takes 7 us, so that all take some 15 s."""


@dataclass(frozen=True)
class Fail:
    """How replicas fail.

    Attributes:
        mtbf: Mean ns from the begin of a replica until it fails.
        repair: ns until it is back.
        seed: Of what is drawn.
    """

    mtbf: int
    repair: int
    seed: int = 0

    def times(self, replica: int) -> Iterator[int]:
        """Yield the ns that a replica works each time."""
        random = np.random.RandomState([self.seed % 2**32, replica])
        while True:
            yield max(1, round(min(random.exponential(self.mtbf), MOST_NS)))


@dataclass(frozen=True)
class Scale:
    """How many replicas run.

    Attributes:
        target: Requests that are not done, for each replica that is wanted.
        least: Replicas that always run.
        start: ns from the decision to start one until it takes requests.
        every: ns between looks.
        hold: ns for which fewer must have been wanted until one is stopped.
    """

    target: int
    least: int
    start: int
    every: int
    hold: int


@dataclass(frozen=True)
class Changes:
    """What changes in a fleet while it serves a load; None: nothing of the kind."""

    fail: Fail | None = None
    scale: Scale | None = None

    def notes(self) -> list[str]:
        """Return what it assumes, a sentence each."""
        found = []
        if fail := self.fail:
            found.append(
                f"each replica fails by itself, after {format_time(fail.mtbf)} on average (exponential), and is back "
                f"with an empty cache {format_time(fail.repair)} later; its requests go to others, or wait: "
                "prompts, and tokens that were sent, are computed again"
            )
        if scale := self.scale:
            found.append(
                f"every {format_time(scale.every)} as many replicas are wanted as give each at most {scale.target:,} "
                f"requests that are not done, at least {scale.least:,}; what is missing takes requests after "
                f"{format_time(scale.start)}, and what no look wanted for {format_time(scale.hold)} takes no more and "
                "stops when its own are done"
            )
        return [*found, "no run whose replicas fail, start or stop was measured, so means have no interval"]


def changes_of(fail: str, scale: str, seed: int, replicas: int) -> Changes | None:
    """Return what changes in a fleet, of texts like ``mtbf=24h,repair=10min`` and ``target=32,min=1``; "": nothing.

    Raises:
        InputError: a key or a value is wrong.
    """
    if not fail and not scale:
        return None
    one = other = None
    if fail:
        values = _values("fail", fail, FAIL)
        one = Fail(_time("fail", fail, "mtbf", values, 1), _time("fail", fail, "repair", values, 0), seed)
    if scale:
        values = _values("scale", scale, SCALE)
        if replicas == 1:
            raise InputError(f"scale {scale}: there is one replica, expected more, e.g. --replicas 4")
        counts = [
            _count(scale, key, values, most) for key, most in (("target", MOST_TARGET), ("min", replicas - 1))
        ]
        times = [
            _time("scale", scale, key, values, least)
            for key, least in (("start", 0), ("every", 1), ("hold", 0))
        ]
        other = Scale(counts[0], counts[1], times[0], times[1], times[2])
    return Changes(one, other)


def _values(name: str, text: str, keys: dict[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in keys:
            raise InputError(
                f"{name} {text}: no key '{key}'{nearest(key, keys)}, expected {one_of(keys)}, as in {EXAMPLES[name]}"
            )
        if key in values:
            raise InputError(f"{name} {text}: {key} is given twice, expected once")
        values[key] = value
    for key, usual in keys.items():
        if not usual and key not in values:
            raise InputError(
                f"{name} {text}: missing key '{key}', expected {one_of(keys)}, as in {EXAMPLES[name]}"
            )
    return {**keys, **values}


def _time(name: str, text: str, key: str, values: dict[str, str], least: int) -> int:
    try:
        found = round(parse_time(values[key]))
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} {text}: {key}: {error}") from None
    if not least <= found <= MOST_NS:
        raise InputError(
            f"{name} {text}: {key}: got {values[key]}, expected {least} ns to {MOST_NS / 1e9:.3g} s"
        )
    return found


def _count(text: str, key: str, values: dict[str, str], most: int) -> int:
    found = whole(values[key])
    if found is None or not 1 <= found <= most:
        raise InputError(
            f"scale {text}: {key}: got '{values[key]}', expected a whole number from 1 to {most:,}"
        )
    return found
