"""Served requests: their times, what they are in words, and how they show themselves."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.units import format_bytes, format_count, format_time
from armillary.report.page.blocks import Block, bars, table
from armillary.report.page.blocks import headline as answer
from armillary.report.page.blocks import lines as lines_of
from armillary.report.page.shown import Shown
from armillary.report.table import Parts, ResultTable
from armillary.serving.interval import RATIOS, ROWS, interval
from armillary.serving.outcome import NS, WAITS, Floats, Outcome, Quantiles, quantiles
from armillary.serving.rate import Found
from armillary.serving.service import Service
from armillary.workload.plan.numbers import stores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
RULE_TITLES = {"vllm": "vLLM V1", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
POINTS = 400
"""Points of a curve on a page."""
SHARES = ("at most|time", "of the requests|share")


@dataclass(frozen=True, repr=False)
class Serving(Shown):
    """Requests that were served.

    Attributes:
        service: What served them.
        outcome: What became of each request.
        limits: Of the service-level objective, name -> s; empty: there is none.
        found: The search that led to this load; None: it was given.
        share: Of the requests that had to be good in that search.
    """

    service: Service
    outcome: Outcome
    limits: Mapping[str, float]
    found: Found | None = None
    share: float = 0.0

    @property
    def ttft_s(self) -> Quantiles:
        """Time to first token of the requests, in s."""
        return quantiles(self.outcome.ttft)

    @property
    def tpot_s(self) -> Quantiles:
        """Time per output token after the first, in s; requests of one token have none."""
        return quantiles(self.outcome.tpot)

    @property
    def e2e_s(self) -> Quantiles:
        """Time from arrival to last token, in s."""
        return quantiles(self.outcome.e2e)

    @property
    def output_tokens_per_s(self) -> float:
        """Of all replicas, from the first arrival to the last token."""
        return self.outcome.output_rate

    @property
    def good(self) -> float | None:
        """Share of the requests that meet the objective; None: there is none."""
        return float(self.outcome.good(self.limits).mean()) if self.limits else None

    @property
    def breakdown(self) -> Parts:
        """Where the time of a request goes, on average: part -> s, the largest first. A table, too."""
        means = {WAITS[name]: float(each.mean()) / NS for name, each in self.outcome.waits.items()}
        return Parts(dict(sorted(means.items(), key=lambda each: -each[1])))

    @property
    def requests(self) -> ResultTable:
        """A row for each request: when it came, and its times, in s; those of one token have no ``tpot``."""
        found = [self.outcome.requests.arrival / NS, self.outcome.ttft, self.outcome.tpot, self.outcome.e2e]
        names = ("arrival", "ttft", "tpot", "e2e")
        rows = zip(*(np.asarray(each, dtype=float).tolist() for each in found), strict=True)
        return ResultTable(
            names,
            [
                {name: None if math.isnan(value) else value for name, value in zip(names, row, strict=True)}
                for row in rows
            ],
        )

    def interval_s(self, name: str) -> tuple[float, float] | None:
        """Return the ends, in s, of the 90 % interval of the mean of ``ttft`` or ``tpot``; None: none is known.

        Of devices whose kernels were not measured as an engine runs them none is.
        """
        value = quantiles(getattr(self.outcome, name)).mean
        if not self.service.measured or name not in RATIOS or math.isnan(value):
            return None
        return interval(name, value)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw the times of the requests into a .png, .svg or .pdf file, or return matplotlib's figure.

        Raises:
            InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
        """
        from armillary.serving.picture import times_picture

        curves = {"TTFT": _shares(self.outcome.ttft), "TPOT": _shares(self.outcome.tpot)}
        return times_picture(headline(self), curves, self._over(), path)

    def __repr__(self) -> str:
        """Return three lines: the answer, the load, and what replicas and cache were used for."""
        return f"{headline(self)}\nLoad: {load_text(self)}\n{use_text(self)}"

    @property
    def title(self) -> str:
        """Model, machine and load."""
        machine = self.service.machine.name
        return f"{self.service.model.name} on {machine}, {self.outcome.requests.about or 'requests'}"

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page; nothing is tried."""
        first, _, rest = headline(self).partition(": ")
        lines = [
            rest,
            *filter(None, [interval_text(self)]),
            f"Load: {load_text(self)}",
            *engine_lines(self),
            use_text(self),
        ]
        columns = (("", "text"), *((name, "time") for name in ("mean", "p50", "p90", "p99")))
        found = {title: quantiles(getattr(self.outcome, name)) for name, title in METRICS.items()}
        rows = [[title, each.mean, each.p50, each.p90, each.p99] for title, each in found.items()]
        means = {name: float(each.mean()) / NS for name, each in self.outcome.waits.items()}
        return [
            answer(first, lines, notes=self.service.assumptions),
            table("Times of requests", columns, rows),
            bars(
                "Where the time of a request goes, on average",
                [("a request", means)],
                {name: WAITS[name] for name in means},
            ),
            lines_of("Requests by time to first token", [("TTFT", _shares(self.outcome.ttft))], *SHARES),
            lines_of("Requests by time per output token", [("TPOT", _shares(self.outcome.tpot))], *SHARES),
            lines_of(
                "Time to first token over the load", [("TTFT", self._over())], "arrival|time", "TTFT|time"
            ),
        ]

    def _over(self) -> list[tuple[float, float]]:
        """Return (arrival, the most that a request of that time waited for its first token), both in s."""
        arrival = self.outcome.requests.arrival / NS
        order = np.argsort(arrival, kind="stable")
        parts = np.array_split(order, min(len(order), POINTS))
        return [(float(arrival[part[0]]), float(self.outcome.ttft[part].max())) for part in parts]


def seconds_text(seconds: float) -> str:
    """Return a time with its unit, "-" for none."""
    return "-" if math.isnan(seconds) else format_time(seconds * 1e9)


def headline(found: Serving) -> str:
    """Return "TTFT 40 ms (p99 90 ms), TPOT 8 ms (p99 9 ms), 1,000 output tokens/s on 1 device"."""
    parts = [
        f"{METRICS[name]} {seconds_text(each.mean)} (p99 {seconds_text(each.p99)})"
        for name, each in (("ttft", found.ttft_s), ("tpot", found.tpot_s))
    ]
    rate, devices = found.output_tokens_per_s, found.service.devices
    text = f"{', '.join(parts)}: {rate:,.0f} output tokens/s on {format_count(devices)} device{'s' * (devices > 1)}"
    if found.good is not None:
        text += f"; {100 * found.good:.1f} % of requests are good"
    return text


def engine_lines(found: Serving) -> list[str]:
    """Return how the model is spread, and what its engine holds, a line for each pool."""
    own = found.service
    if own.prefill is None:
        return [f"Engine: {_engine_text(own)}"]
    return [f"Prefill: {_engine_text(own.prefill)}", f"Decode: {_engine_text(own)}"]


def _engine_text(service: Service) -> str:
    own, engine = service.plan, service.engine
    kept, replicas = stores(own), service.replicas // service.stages
    ranks = f", dp {engine.ranks}" if engine.ranks > 1 else ""
    ranks += f", pp {service.stages}" if service.stages > 1 else ""
    spread = f"{replicas} replica{'s' * (replicas > 1)} of tp {own.parallel.tp}{ranks}"
    rule = RULE_TITLES[engine.rule]
    memory = " of each batch" if service.stages > 1 else " of each rank" if ranks else ""
    if capacity := service.capacity:
        memory += (
            f", {format_bytes(capacity.cache)} beside weights of {format_bytes(capacity.weights)} and "
            f"{format_bytes(capacity.working)} for a step"
        )
    return (
        f"{spread}, {own.numbers.compute} with weights in {kept.weights} and cache in {kept.cache}; {rule}, at most "
        f"{engine.budget:,} tokens and {engine.sequences:,} sequences a step"
        f"{f', {len(engine.accepted)} drafts of each' if engine.accepted else ''}; {engine.blocks:,} blocks of "
        f"{engine.block} tokens{memory}"
    )


def interval_text(found: Serving) -> str:
    """Return within what the means of such runs were measured; "": of this device it is not known."""
    parts = []
    for name in RATIOS:
        if ends := found.interval_s(name):
            low, high = (seconds_text(each) for each in ends)
            parts.append(f"{METRICS[name]} {low} to {high}")
    return f"90 % interval of means: {', '.join(parts)}, from {ROWS:,} measured runs" if parts else ""


def rate_text(found: Serving) -> str:
    """Return how large the largest load is within the objective; "": none was looked for."""
    if found.found is None:
        return ""
    requests = found.outcome.requests
    rate = (len(requests) - 1) / (float(requests.arrival.max() - requests.arrival.min()) / 1e9 or math.inf)
    limits = " and ".join(f"{METRICS[name]} of {seconds_text(most)}" for name, most in found.limits.items())
    beyond = 100 * (found.found.beyond / found.found.speed - 1)
    return (
        f"Largest load: {rate:.4g} requests/s, at which {100 * (found.good or 0):.1f} % of requests keep within "
        f"{limits}; at least {100 * found.share:g} % must, and {beyond:.1f} % "
        f"more load is too much ({len(found.found.tried)} loads tried)"
    )


def load_text(found: Serving) -> str:
    """Return what was served."""
    requests = found.outcome.requests
    rate = len(requests) / found.outcome.duration_s
    follows = requests.follows
    sessions = f" in {int(follows.sessions.max()) + 1:,} sessions" if follows else ""
    return (
        f"{requests.about or 'requests'}: {len(requests):,} requests{sessions} of {requests.prompt.mean():,.0f} and "
        f"{requests.output.mean():,.0f} tokens on average, in {seconds_text(found.outcome.duration_s)}, "
        f"{rate:.3g} requests/s"
    )


def use_text(found: Serving) -> str:
    """Return what replicas and cache were used for."""
    outcome = found.outcome
    mean, most = outcome.cache_use
    preempted, users = int(outcome.preempted.sum()), per_user(found)
    busy = f"{100 * outcome.busy:.1f} % of the time"
    if outcome.moved:
        busy = f"that prefill {100 * outcome.busy_share(outcome.moved.replicas):.1f} %, that decode {busy}"
    text = (
        f"Use: devices {busy}, cache {100 * mean:.1f} % (at most {100 * most:.1f} %), "
        f"{preempted:,} preemption{'s' * (preempted != 1)}, prefix cache {100 * hit_share(found):.1f} % of tokens"
    )
    if any((found.service.prefill or found.service).engine.slots):
        text += f", {100 * host_share(found):.1f} % from the host"
    if own := found.service.changes:
        there = outcome.there_share * found.service.replicas
        text += f"; {outcome.failures:,} failure{'s' * (outcome.failures != 1)}" if own.fail else ""
        text += f"; {there:.3g} of {found.service.replicas:,} replicas on average" if own.scale else ""
    if outcome.moved:
        text += f"; at most {format_bytes(outcome.moved.most_between)} between the pools at a time"
    if not math.isnan(users):
        each = found.output_tokens_per_s / found.service.devices
        text += f"; {each:,.0f} tokens/s per device, {users:,.1f} per user"
    return text


def per_user(found: Serving) -> float:
    """Return tokens per s that a user sees: of the median time per token; nan: there is none."""
    middle = found.tpot_s.p50
    return 1 / middle if middle > 0 else math.nan


def hit_share(found: Serving) -> float:
    """Return the share of prompt tokens that were in the prefix cache when their request began or began anew."""
    outcome = found.outcome
    again = sum(int(each.again.sum()) for each in (outcome.moved or outcome).replicas)
    return float(outcome.hit.sum()) / (float(outcome.requests.prompt.sum()) + again)


def host_share(found: Serving) -> float:
    """Return the share of prompt tokens that came from the host when their request began or began anew."""
    parts = (found.outcome.moved or found.outcome).replicas
    again = sum(int(each.again.sum()) for each in parts)
    return sum(int(each.loaded.sum()) for each in parts) / (
        float(found.outcome.requests.prompt.sum()) + again
    )


def _shares(values: Floats) -> list[tuple[float, float]]:
    """Return (value, share of the requests that are at most that)."""
    known = np.sort(values[~np.isnan(values)])
    at = np.unique(np.linspace(0, len(known) - 1, min(len(known), POINTS)).astype(np.int64))
    return [(float(known[i]), (int(i) + 1) / len(known)) for i in at]
