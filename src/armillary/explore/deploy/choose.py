"""`plan_serving`: which replicas serve a load within an objective on the fewest devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.document import Source
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.kinds import check_kinds
from armillary.compute.machine import Machine, machine_of
from armillary.explore.deploy.flags import launch
from armillary.report.page.blocks import Block, table, text
from armillary.report.page.blocks import headline as answer
from armillary.report.page.shown import Shown
from armillary.serving.load import cut, load_requests
from armillary.serving.pools import apart, decoding
from armillary.serving.requests import Requests
from armillary.serving.result import METRICS, Serving, interval_text, load_text, per_user, seconds_text
from armillary.serving.service import Service, limits_of, service
from armillary.serving.spread import Wanted
from armillary.workload.models import Model, load_model
from armillary.workload.models.schema import Decoder

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many are done, and of how many."""
MORE = 6
"""How often a pool gets a further replica beyond what each needs alone."""
CHOSEN = (
    "tp",
    "dp",
    "ep",
    "replicas",
    "prefill_replicas",
    "decode_replicas",
    "prefill_tp",
    "prefill_dp",
    "blocks",
)
"""Attributes of `Wanted` that are chosen here, or differ from choice to choice."""


@dataclass(frozen=True)
class Deployment:
    """Replicas that served the load.

    Attributes:
        served: What became of it.
        share: Of the requests that must be good.
    """

    served: Serving
    share: float

    @property
    def service(self) -> Service:
        """What served it."""
        return self.served.service

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.service.devices

    @property
    def good(self) -> float:
        """Share of the requests that meet the objective."""
        return self.served.good or 0.0

    @property
    def meets(self) -> bool:
        """Whether enough requests do."""
        return self.good >= self.share

    @property
    def per_device(self) -> float:
        """Output tokens per s and device."""
        return self.served.output_tokens_per_s / self.devices

    @property
    def per_user(self) -> float:
        """Tokens per s that a user sees, of the median time per token; nan: answers have one token."""
        return per_user(self.served)

    @property
    def name(self) -> str:
        """Such as "2 x tp 4", or "prefill 1 x tp 4, decode 2 x tp 2"."""
        if before := self.service.prefill:
            return f"prefill {_replicas(before)}, decode {_replicas(self.service)}"
        return _replicas(self.service)


def _replicas(of: Service) -> str:
    return f"{of.replicas} x {_kind(of)}"


def _kind(of: Service) -> str:
    tp, dp = of.plan.parallel.tp, of.engine.ranks
    return f"dp {dp}" if dp > 1 else f"tp {tp}"


@dataclass(frozen=True, repr=False)
class Deployments(Shown):
    """What was tried to serve a load.

    Attributes:
        tried: Those that meet the objective first, fewest devices first and of these most good requests; then the
            others, most good requests first.
        rejected: Kind of replica -> why there can be none.
    """

    tried: tuple[Deployment, ...]
    rejected: Mapping[str, str]

    @property
    def best(self) -> Deployment:
        """That on the fewest devices that meets the objective; if none does, that of the most good requests."""
        return self.tried[0]

    @cached_property
    def front(self) -> tuple[bool, ...]:
        """Of those tried, whether none gives more tokens per s and device and more per user at once."""
        points = [(each.per_device, each.per_user) for each in self.tried]
        return tuple(
            not any(a >= device and b >= user and (a, b) != (device, user) for a, b in points)
            for device, user in points
        )

    @property
    def headline(self) -> str:
        """The answer."""
        best, found = self.best, self.best.served
        limits = " and ".join(
            f"{METRICS[name]} of {seconds_text(most)}" for name, most in found.limits.items()
        )
        times = f"TTFT {seconds_text(found.ttft_s.mean)}, TPOT {seconds_text(found.tpot_s.mean)}"
        what = f"{100 * best.good:.1f} % of requests keep within {limits} ({times} on average)"
        if best.meets:
            return f"{best.name}, the fewest devices ({best.devices}) of {len(self.tried)} tried: {what}"
        devices = f"{best.devices} device{'s' * (best.devices > 1)}"
        return f"None of {len(self.tried)} tried is enough: at most {what}, with {best.name} on {devices}"

    def __repr__(self) -> str:
        """Return the answer, and what was tried."""
        return f"{self.headline}\nLoad: {load_text(self.best.served)}\n{len(self.tried)} tried"

    @property
    def title(self) -> str:
        """Model, machine and load."""
        return f"Replicas of {self.best.served.title}"

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return of each that was tried its name, and devices, good share, s, s, and tokens per s."""
        return [
            (
                each.name,
                [
                    each.devices, each.good, each.served.ttft_s.mean, each.served.tpot_s.mean, each.per_device,
                    each.per_user,
                ],
            )
            for each in self.tried
        ]  # fmt: skip

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page: the answer, what was tried, how to start it, and what becomes of requests."""
        columns = (
            ("replicas", "text"), ("devices", "count"), ("good", "share"), ("TTFT", "time"), ("TPOT", "time"),
            ("tokens/s per device", "number"), ("per user", "number"), ("on the front", "text"),
        )  # fmt: skip
        rows = [
            [name, *values, "yes" if on else ""]
            for (name, values), on in zip(self.rows(), self.front, strict=True)
        ]
        first, _, rest = self.headline.partition(": ")
        found = [
            answer(
                first,
                [
                    rest,
                    *filter(None, [interval_text(self.best.served)]),
                    f"Load: {load_text(self.best.served)}",
                ],
                notes=self.best.service.assumptions,
            ),
            table("What was tried", columns, rows),
            text("How to start it", launch(self.best.service)),
        ]
        if self.rejected:
            why = [[kind, each] for kind, each in self.rejected.items()]
            found.append(table("Why others are not among them", (("replica", "text"), ("why", "text")), why))
        return [*found, *self.best.served.blocks(changes=changes)[1:]]


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
        options: As of `armillary.serve`, but for numbers of devices, ranks and replicas, which are chosen.

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
    names = [each.name for each in fields(Wanted) if each.name not in CHOSEN]
    for name in options:
        if name in CHOSEN:
            raise InputError(f"plan serve: {name} is chosen, expected it with serve only")
        if name not in names:
            raise InputError(
                f"plan serve: no option '{name}'{nearest(name, names)}, expected {one_of(names)}"
            )
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
    kinds, rejected = _kinds(read, found, requests, Wanted(**options), search.tell)
    search.serve(kinds, found.npus)
    if requests.follows is not None:
        rejected["prefill and decoding apart"] = "some requests of the load follow others"
    order = sorted(
        search.tried, key=lambda each: (not each.meets, each.devices if each.meets else 0, -each.good)
    )
    return Deployments(tuple(order), rejected)


def spreads_of(model: Model, machine: Machine) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds of replica to try, each with its name and options: devices that share matrices, or experts."""
    sizes = [
        each for each in range(1, machine.npus + 1) if machine.npus % each == 0 and each & (each - 1) == 0
    ]
    found: list[tuple[str, dict[str, Any]]] = [(f"tp {each}", {"tp": each}) for each in sizes]
    if isinstance(model, Decoder) and model.experts is not None:
        found += [(f"dp {each}", {"tp": 1, "dp": each, "ep": each}) for each in sizes[1:]]
    return found


def _kinds(
    model: Model, machine: Machine, requests: Requests, wanted: Wanted, tell: Progress
) -> tuple[list[Service], dict[str, str]]:
    """Return a service of each kind of replica that fits, and why others do not.

    Raises:
        InputError: none does.
    """
    spreads = spreads_of(model, machine)
    found: list[Service] = []
    rejected: dict[str, str] = {}
    for at, (name, keys) in enumerate(spreads):
        size = keys["tp"] * keys.get("dp", 1)
        # Beyond a node all-reduces go over the fabric: only where nothing smaller fits.
        if size > machine.domain and any(each.replica_devices <= machine.domain for each in found):
            rejected[name] = (
                f"more than the {machine.domain} devices of a node, where a replica fits on fewer"
            )
            continue
        try:
            found.append(service(model, machine, requests, replace(wanted, **keys)))
        except InputError as error:
            rejected[name] = str(error)
        tell("timing steps", at + 1, len(spreads))
    if not found:
        raise InputError(f"plan serve: no replica fits on {machine.name}; {next(iter(rejected.values()))}")
    return found, rejected


class _Search:
    """What is tried, each once."""

    def __init__(self, requests: Requests, limits: Mapping[str, float], share: float, tell: Progress) -> None:
        self.requests, self.limits, self.share, self.tell = requests, limits, share, tell
        self.tried: list[Deployment] = []

    def serve(self, kinds: list[Service], npus: int) -> None:
        """Serve the load by replicas of each kind, and of each two kinds, on up to so many devices."""
        # Prompts of requests that follow others come when answers are done: two pools do not serve such.
        apart = self.requests.follows is None
        pairs = [(one, other) for one in kinds for other in kinds if apart]
        total = len(kinds) + len(pairs)
        for at, each in enumerate(kinds):
            self._least(each, npus // each.replica_devices)
            self.tell("serving", at + 1, total)
        sizes = [(each, npus // each.replica_devices) for each in kinds if apart]
        prompts = {id(each): self._prompts(each, most) for each, most in sizes}
        answers = {id(each): self._answers(each, most) for each, most in sizes}
        for at, (one, other) in enumerate(pairs):
            self._pools(one, other, prompts[id(one)], answers[id(other)], npus)
            self.tell("serving", len(kinds) + at + 1, total)

    def _try(self, of: Service) -> Deployment:
        found = Deployment(Serving(of, of.run(self.requests), self.limits), self.share)
        self.tried.append(found)
        return found

    def _least(self, kind: Service, most: int) -> None:
        """Serve by the least number of replicas that is enough, and by those that the search goes by."""
        _smallest(lambda count: self._try(replace(kind, replicas=count)).meets, most)

    def _prompts(self, kind: Service, most: int) -> int:
        """Return the least number of replicas that compute the prompts early enough, if transfers took no time."""
        limit = min(self.limits.get(name, np.inf) for name in ("ttft", "e2e"))
        alone = replace(self.requests, output=np.ones(len(self.requests), np.int64))

        def enough(count: int) -> bool:
            found = replace(kind, replicas=count).run(alone)
            return bool((found.ttft <= limit).mean() >= self.share)

        return _smallest(enough, most)

    def _answers(self, kind: Service, most: int) -> int:
        """Return the least number of replicas that decode fast enough, if prompts took no time."""
        limits = {name: limit for name, limit in self.limits.items() if name == "tpot"}
        own, engine = self.requests, decoding(kind.engine)
        load = replace(own, prompt=own.prompt - 1, output=own.output + 1, shared=None)

        def enough(count: int) -> bool:
            found = replace(kind, engine=engine, replicas=count, router="round-robin").run(load)
            return bool(found.good(limits).mean() >= self.share)

        return _smallest(enough, most) if limits else 1

    def _pools(self, one: Service, other: Service, x: int, y: int, npus: int) -> None:
        """Serve by two pools, with a further replica of what most of the bad requests wait for until it is enough."""
        used = x * one.replica_devices + y * other.replica_devices
        if used > npus:
            # Not enough, but what there can be, divided as they are needed.
            x = max(1, x * npus // used)
            y = (npus - x * one.replica_devices) // other.replica_devices
        for _ in range(MORE if y else 0):
            if x * one.replica_devices + y * other.replica_devices > npus:
                return
            found = self._try(apart(one, other, x, y, self.requests))
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


def _smallest(enough: Callable[[int], bool], most: int) -> int:
    """Return the least number from 1 that is enough, if a larger one then is, too; `most` if none is."""
    low, high = 0, 1
    while not enough(high):
        if high == most:
            return most
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
