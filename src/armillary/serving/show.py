"""Served requests for people and for JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.units import format_bytes, format_count, format_time
from armillary.serving import columns
from armillary.serving.outcome import WAITS, Quantiles, quantiles
from armillary.serving.serve import Serving
from armillary.workload.plan.numbers import stores

if TYPE_CHECKING:
    from rich.table import Table

BAR = 30
"""Characters of the longest bar."""
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}


def _time(seconds: float) -> str:
    return "-" if math.isnan(seconds) else format_time(seconds * 1e9)


def headline(found: Serving) -> str:
    """Return "TTFT 40 ms (p99 90 ms), TPOT 8 ms (p99 9 ms), 1,000 output tokens/s on 1 device"."""
    parts = [
        f"{METRICS[name]} {_time(each.mean)} (p99 {_time(each.p99)})"
        for name, each in (("ttft", found.ttft_s), ("tpot", found.tpot_s))
    ]
    rate, devices = found.output_tokens_per_s, found.service.devices
    text = f"{', '.join(parts)}: {rate:,.0f} output tokens/s on {format_count(devices)} device{'s' * (devices > 1)}"
    if found.good is not None:
        text += f"; {100 * found.good:.1f} % of requests are good"
    return text


def engine_text(found: Serving) -> str:
    """Return how the model is spread, and what its engine holds."""
    own, engine = found.service.plan, found.service.engine
    kept, replicas = stores(own), found.service.replicas
    spread = f"{replicas} replica{'s' * (replicas > 1)} of tp {own.parallel.tp}"
    rule = RULE_TITLES[engine.rule]
    memory = ""
    if capacity := found.service.capacity:
        memory = (
            f", {format_bytes(capacity.cache)} beside weights of {format_bytes(capacity.weights)} and "
            f"{format_bytes(capacity.working)} for a step"
        )
    return (
        f"{spread}, {own.numbers.compute} with weights in {kept.weights} and cache in {kept.cache}; {rule}, at most "
        f"{engine.budget:,} tokens and {engine.sequences:,} sequences a step; {engine.blocks:,} blocks of "
        f"{engine.block} tokens{memory}"
    )


RULE_TITLES = {"vllm": "vLLM V1", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def rate_text(found: Serving) -> str:
    """Return how large the largest load is within the objective; "": none was looked for."""
    if found.found is None:
        return ""
    requests = found.outcome.requests
    rate = (len(requests) - 1) / (float(requests.arrival.max() - requests.arrival.min()) / 1e9 or math.inf)
    limits = " and ".join(f"{METRICS[name]} of {_time(most)}" for name, most in found.limits.items())
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
    return (
        f"{requests.about or 'requests'}: {len(requests):,} requests of {requests.prompt.mean():,.0f} and "
        f"{requests.output.mean():,.0f} tokens on average, in {_time(found.outcome.duration_s)}, "
        f"{rate:.3g} requests/s"
    )


def metrics_table(found: Serving) -> Table:
    """Return the times of requests."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("", "mean", "p50", "p90", "p99"):
        table.add_column(name, justify="right" if name else "left")
    for name, title in METRICS.items():
        each = quantiles(getattr(found.outcome, name))
        table.add_row(title, *(_time(value) for value in (each.mean, each.p50, each.p90, each.p99)))
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
        share = means[name] / total if total else 0.0
        if share > 0:
            table.add_row(
                f"{name}: {title}", format_time(means[name]), f"{100 * share:.1f} %", "█" * round(BAR * share)
            )
    return table


def use_text(found: Serving) -> str:
    """Return what replicas and cache were used for."""
    outcome = found.outcome
    mean, most = outcome.cache_use
    preempted, users = int(outcome.preempted.sum()), per_user(found)
    text = (
        f"Use: devices {100 * outcome.busy:.1f} % of the time, cache {100 * mean:.1f} % (at most {100 * most:.1f} %), "
        f"{preempted:,} preemption{'s' * (preempted != 1)}, prefix cache {100 * hit_share(found):.1f} % of tokens"
    )
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
    again = sum(int(each.again.sum()) for each in outcome.replicas)
    return float(outcome.hit.sum()) / (float(outcome.requests.prompt.sum()) + again)


def serving_json(found: Serving, *, requests: bool = False) -> dict[str, Any]:
    """Return served requests as JSON has them: s, tokens and shares, as the key names say; null: there is none."""
    outcome, own, engine = found.outcome, found.service.plan, found.service.engine
    kept, capacity = stores(own), found.service.capacity
    rate, devices = found.output_tokens_per_s, found.service.devices
    mean, most = outcome.cache_use
    waiting = max(int(each.steps[:, columns.L_WAITING].max()) for each in outcome.replicas)
    result: dict[str, Any] = {
        "model": found.service.model.name,
        "machine": found.service.machine.name,
        "devices": devices,
        "replicas": found.service.replicas,
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
        "find_rate": None if found.found is None else {
            "share": found.share, "speed": found.found.speed, "beyond": found.found.beyond,
            "tried": [{"speed": speed, "good": good} for speed, good in sorted(found.found.tried.items())],
        },
        "busy": outcome.busy,
        "steps": sum(len(each.steps) for each in outcome.replicas),
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
            "ahead": engine.ahead,
        },
        "plan": {
            "tp": own.parallel.tp, "precision": own.numbers.compute, "weights": kept.weights,
            "cache": kept.cache,
        },
        "assumptions": list(found.service.assumptions),
    }  # fmt: skip
    if requests:
        result["requests"] = _each(found)
    return result


def _each(found: Serving) -> list[dict[str, Any]]:
    outcome = found.outcome
    values = {
        "replica": outcome.replica, "arrival_s": outcome.requests.arrival / 1e9,
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
