"""Served requests for people and for JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.units import format_time
from armillary.serving import columns
from armillary.serving.outcome import WAITS, Quantiles, quantiles
from armillary.serving.result import METRICS, Serving, hit_share, host_share, per_user, seconds_text
from armillary.workload.plan.numbers import stores

if TYPE_CHECKING:
    from rich.table import Table

BAR = 30
"""Characters of the longest bar."""


def metrics_table(found: Serving) -> Table:
    """Return the times of requests."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("", "mean", "p50", "p90", "p99"):
        table.add_column(name, justify="right" if name else "left")
    for name, title in METRICS.items():
        each = quantiles(getattr(found.outcome, name))
        table.add_row(title, *(seconds_text(value) for value in (each.mean, each.p50, each.p90, each.p99)))
    return table


def waits_table(found: Serving) -> Table:
    """Return where the time of a request goes, on average, with bars; the parts add up to its end."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify)
    means = {name: float(each.mean()) for name, each in found.outcome.waits.items()}
    total = sum(means.values())
    for name, title in WAITS.items():
        share = means.get(name, 0.0) / total if total else 0.0
        if share > 0:
            table.add_row(
                f"{name}: {title}",
                format_time(means[name]),
                f"{100 * share:.1f} %",
                "█" * round(BAR * share),
            )
    return table


def serving_json(found: Serving, *, requests: bool = False) -> dict[str, Any]:
    """Return served requests as JSON has them: s, tokens and shares, as the key names say; null: there is none."""
    outcome, own, engine = found.outcome, found.service.plan, found.service.engine
    kept, capacity = stores(own), found.service.capacity
    rate, devices = found.output_tokens_per_s, found.service.devices
    mean, most = outcome.cache_use
    moved = outcome.moved
    replicas = (*outcome.replicas, *(moved.replicas if moved else ()))
    waiting = max(int(each.steps[:, columns.L_WAITING].max()) for each in replicas)
    result: dict[str, Any] = {
        "model": found.service.model.name,
        "machine": found.service.machine.name,
        "devices": devices,
        "replicas": found.service.replicas // found.service.stages,
        "load": outcome.requests.about,
        "count": len(outcome.requests),
        "duration_s": outcome.duration_s,
        "ttft_s": _quantiles(found.ttft_s),
        "tpot_s": _quantiles(found.tpot_s),
        "e2e_s": _quantiles(found.e2e_s),
        "waits_s": {name: _quantiles(quantiles(each / 1e9)) for name, each in outcome.waits.items()},
        "requests_per_s": len(outcome.requests) / outcome.duration_s,
        "output_tokens_per_s": rate,
        "output_tokens_per_s_device": rate / devices,
        "tokens_per_s_user": _number(per_user(found)),
        "good": found.good,
        "goodput_requests_per_s": None if found.good is None
        else found.good * len(outcome.requests) / outcome.duration_s,
        "slo_s": dict(found.limits),
        "interval_s": {name: found.interval_s(name) for name in ("ttft", "tpot")},
        "find_rate": None if found.found is None else {
            "share": found.share, "speed": found.found.speed, "beyond": found.found.beyond,
            "tried": [{"speed": speed, "good": good} for speed, good in sorted(found.found.tried.items())],
        },
        "busy": outcome.busy,
        "steps": sum(len(each.steps) for each in replicas),
        "preemptions": int(outcome.preempted.sum()),
        "prefix_hit": hit_share(found),
        "most_waiting": waiting,
        "cache": {
            "blocks": engine.blocks, "block_tokens": engine.block, "mean": mean, "most": most,
            "weights_bytes": capacity.weights if capacity else None,
            "working_bytes": capacity.working if capacity else None,
            "cache_bytes": capacity.cache if capacity else None,
        },
        "engine": {
            "rule": engine.rule, "budget": engine.budget, "sequences": engine.sequences, "cached": engine.cached,
            "ahead": engine.ahead, "drafts": len(engine.accepted),
        },
        "plan": {
            "tp": own.parallel.tp, "pp": found.service.stages, "dp": engine.ranks,
            "precision": own.numbers.compute, "weights": kept.weights, "cache": kept.cache,
        },
        "assumptions": list(found.service.assumptions),
    }  # fmt: skip
    slots = (found.service.prefill or found.service).engine.slots
    if any(slots):
        result["host"] = {"blocks": slots[0], "disk_blocks": slots[1], "hit": host_share(found)}
    if found.service.changes:
        result["changes"] = {
            "failures": outcome.failures, "replicas_mean": outcome.there_share * found.service.replicas,
        }  # fmt: skip
    if (before := found.service.prefill) and moved:
        result["prefill"] = {
            "replicas": before.replicas, "tp": before.plan.parallel.tp, "dp": before.engine.ranks,
            "blocks": before.engine.blocks, "busy": outcome.busy_share(moved.replicas),
            "moved_bytes": int(moved.bytes.sum()), "most_between_bytes": moved.most_between,
        }  # fmt: skip
    if requests:
        result["requests"] = _each(found)
    return result


def _each(found: Serving) -> list[dict[str, Any]]:
    outcome = found.outcome
    pools = (
        {"prefill_replica": outcome.moved.replica, "moved_bytes": outcome.moved.bytes}
        if outcome.moved
        else {}
    )
    follows = outcome.requests.follows
    values = {
        **({"session": follows.sessions} if follows else {}),
        "replica": outcome.replica, **pools, "arrival_s": outcome.requests.arrival / 1e9,
        "input_tokens": outcome.requests.prompt, "output_tokens": outcome.requests.output,
        "ttft_s": outcome.ttft, "tpot_s": outcome.tpot, "e2e_s": outcome.e2e,
        **{f"{name}_s": each / 1e9 for name, each in outcome.waits.items()},
        "preemptions": outcome.preempted, "hit_tokens": outcome.hit,
    }  # fmt: skip
    rows = zip(*(np.asarray(each).tolist() for each in values.values()), strict=True)
    return [{name: _number(value) for name, value in zip(values, row, strict=True)} for row in rows]


def _quantiles(found: Quantiles) -> dict[str, float | None]:
    return {name: _number(value) for name, value in vars(found).items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
