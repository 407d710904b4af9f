"""`plan_serving`: which replicas serve a load within an objective on the fewest devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.kinds import check_kinds
from armillary.compute.machine import machine_of
from armillary.explore.deploy.deployment import Deployment, Deployments
from armillary.explore.deploy.kinds import Kind, Progress, kinds_of
from armillary.serving.load import cut, load_requests
from armillary.serving.pools import apart, decoding
from armillary.serving.requests import Requests
from armillary.serving.result import Serving
from armillary.serving.service import Service, limits_of
from armillary.workload.models import load_model

MORE = 6
"""How often a pool gets a further replica beyond what each needs alone."""


def plan_serving(
    model: str | Path,
    machine: Source,
    load: str | Path | Requests,
    *,
    slo: str,
    share: float = 0.9,
    seed: int = 0,
    first: int | None = None,
    speed: float = 1.0,
    progress: Progress | None = None,
    **options: Any,
) -> Deployments:
    """Return which replicas serve a load within an objective, those on the fewest devices first.

    Args:
        model: See `armillary.serve`, as for all others.
        machine: Devices that there are; as few are used as needed.
        load: An open load.
        slo: Limits that a good request meets, e.g. ``ttft=500ms,tpot=50ms``.
        share: Of the requests that must be good.
        seed: Of what is drawn.
        first: How many requests of the load are served.
        speed: By which the time between requests is divided.
        progress: See `Progress`.
        options: As of `armillary.serve`, but for numbers of devices, ranks and replicas, which are chosen. Of `engine`,
            `precision`, `budget` and `sequences` there may be several, of which one is chosen. By default these are
            the engines whose kernels were measured on the device, the precision in which the model is published, and
            what is usual of a step, with others where that needs more devices.

    Raises:
        InputError: something of it is wrong, or no replica fits on the machine.
    """
    given = {
        "model": model,
        "load": load,
        "slo": slo,
        "share": share,
        "seed": seed,
        "first": first,
        "speed": speed,
    }
    check_kinds(given, plan_serving.__annotations__)
    if not 0 < share <= 1:
        raise InputError(f"share {100 * share:g} %: expected a share of the requests above 0 %, up to 100 %")
    if not slo:
        raise InputError("plan serve: there is no objective, expected one, e.g. --slo ttft=500ms,tpot=50ms")
    limits = limits_of(slo)
    requests = cut(load if isinstance(load, Requests) else load_requests(load, seed), first, speed)
    if requests.clients:
        raise InputError(
            "plan serve: clients of a closed loop send when they have their answer, expected an open load"
        )
    search = _Search(requests, limits, share, progress or (lambda what, done, of: None))
    read, found = load_model(model), machine_of(machine)
    kinds, rejected = kinds_of(read, found, requests, options, search.tell)
    search.serve(kinds, found.npus)
    if requests.follows is not None:
        rejected["prefill and decoding apart"] = "some requests of the load follow others"
    order = sorted(
        search.tried, key=lambda each: (not each.meets, each.devices if each.meets else 0, -each.good)
    )
    return Deployments(tuple(order), rejected)


class _Search:
    """What is tried, each once."""

    def __init__(self, requests: Requests, limits: Mapping[str, float], share: float, tell: Progress) -> None:
        self.requests, self.limits, self.share, self.tell = requests, limits, share, tell
        self.tried: list[Deployment] = []

    def serve(self, kinds: list[Kind], npus: int) -> None:
        """Serve the load by replicas of each kind, and of each two kinds, on up to so many devices."""
        # Prompts of requests that follow others come when answers are done: two pools do not serve such.
        apart = self.requests.follows is None
        pairs = [(one, other) for one in kinds for other in kinds if apart and one.pairs_with(other)]
        total = 2 * len(kinds) + len(pairs)
        least, prompts, answers = [], {}, {}
        for at, each in enumerate(kinds):
            most = npus // each.devices
            least.append(_smallest(lambda count, kind=each: self._alone(kind, count).meets, most))  # type: ignore[misc]
            if apart:
                prompts[id(each)], answers[id(each)] = (
                    of(each.service, most) for of in (self._prompts, self._answers)
                )
            self.tell("serving", at + 1, total)
        for at, (one, other) in enumerate(pairs):
            self._pools(one, other, prompts[id(one)][0], answers[id(other)][0], npus)
            self.tell("serving", len(kinds) + at + 1, total)
        for at, (each, (count, enough)) in enumerate(
            sorted(zip(kinds, least, strict=True), key=lambda each: each[0].devices)
        ):
            # No fewer than prompts or answers need alone.
            needed = [
                count + (not enough)
                for count, enough in (of.get(id(each), (1, True)) for of in (prompts, answers))
            ]
            self._other_limits(each, count - enough, max(needed))
            self.tell("serving", len(kinds) + len(pairs) + at + 1, total)

    def _try(self, of: Service, words: str) -> Deployment:
        found = self._served(of, words)
        self.tried.append(found)
        return found

    def _served(self, of: Service, words: str) -> Deployment:
        return Deployment(Serving(of, of.run(self.requests), self.limits), self.share, words)

    def _alone(self, kind: Kind, count: int) -> Deployment:
        return self._try(replace(kind.service, replicas=count), kind.words)

    def _other_limits(self, kind: Kind, count: int, least: int) -> None:
        """Serve by `count` replicas with other limits of a step, then by fewer, while that takes the fewest devices.

        First the most tokens are chosen, then, with these, the most sequences. Only what is enough is kept.
        """
        while count >= least and count * kind.devices < min(
            (each.devices for each in self.tried if each.meets), default=np.inf
        ):
            best = self._best_of(kind, count, [(each, None) for each in kind.budgets])
            if best is None or not best[0].meets:
                budget = best[1] if best else None
                best = self._best_of(kind, count, [(budget, each) for each in kind.sequences])
            if best is None or not best[0].meets:
                return
            self.tried.append(best[0])
            count -= 1

    def _best_of(
        self, kind: Kind, count: int, limits: Sequence[tuple[int | None, int | None]]
    ) -> tuple[Deployment, int | None] | None:
        """Return the first of several limits of a step that is enough, else the best, and its most tokens."""
        best: tuple[Deployment, int | None] | None = None
        for budget, sequences in limits:
            try:
                other = kind.limited(budget, sequences)
                found = self._served(replace(other.service, replicas=count), other.words)
            except InputError:
                # A prompt that is not divided needs as many tokens, and a step its memory.
                continue
            if best is None or found.good > best[0].good:
                best = found, budget
            if found.meets:
                break
        return best

    def _prompts(self, kind: Service, most: int) -> tuple[int, bool]:
        """Return the least number of replicas that compute the prompts early enough, if transfers took no time."""
        limit = min(self.limits.get(name, np.inf) for name in ("ttft", "e2e"))
        alone = replace(self.requests, output=np.ones(len(self.requests), np.int64))

        def enough(count: int) -> bool:
            found = replace(kind, replicas=count).run(alone)
            return bool((found.ttft <= limit).mean() >= self.share)

        return _smallest(enough, most)

    def _answers(self, kind: Service, most: int) -> tuple[int, bool]:
        """Return the least number of replicas that decode fast enough, if prompts took no time."""
        limits = {name: limit for name, limit in self.limits.items() if name == "tpot"}
        own, engine = self.requests, decoding(kind.engine)
        load = replace(own, prompt=own.prompt - 1, output=own.output + 1, shared=None)

        def enough(count: int) -> bool:
            found = replace(kind, engine=engine, replicas=count, router="round-robin").run(load)
            return bool(found.good(limits).mean() >= self.share)

        return _smallest(enough, most) if limits else (1, True)

    def _pools(self, one: Kind, other: Kind, x: int, y: int, npus: int) -> None:
        """Serve by two pools, with a further replica of what most of the bad requests wait for until it is enough."""
        used = x * one.devices + y * other.devices
        if used > npus:
            # Not enough, but what there can be, divided as they are needed.
            x = max(1, x * npus // used)
            y = (npus - x * one.devices) // other.devices
        for _ in range(MORE if y else 0):
            if x * one.devices + y * other.devices > npus:
                return
            found = self._try(apart(one.service, other.service, x, y, self.requests), one.words)
            if found.meets:
                return
            outcome = found.served.outcome
            bad = ~outcome.good(self.limits)
            waits = {name: float(each[bad].sum()) for name, each in outcome.waits.items()}
            late = bad & (outcome.ttft > self.limits.get("ttft", np.inf))
            if late.sum() * 2 > bad.sum() and waits["queue"] + waits["prefill"] > waits["room"]:
                x += 1
            else:
                y += 1


def _smallest(enough: Callable[[int], bool], most: int) -> tuple[int, bool]:
    """Return the least number from 1 that is enough, if a larger one then is, too; `most` and False if none is."""
    low, high = 0, 1
    while not enough(high):
        if high == most:
            return most, False
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high, True
