"""Predicted steps for people and for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bytes, format_count, format_time
from armillary.explore.training.choose import Choice
from armillary.explore.training.parts import PARTS, TITLES
from armillary.explore.training.train import Prediction, tells_apart
from armillary.workload.plan.request import keys_of
from armillary.workload.plan.schema import Plan

if TYPE_CHECKING:
    from rich.table import Table

BAR = 30
"""Characters of the longest bar."""


def seconds_text(seconds: float) -> str:
    """Return a time with its unit."""
    return format_time(seconds * 1e9)


def headline(found: Prediction) -> str:
    """Return "Step 6.9 s (90 % interval 6.2 s to 7.6 s), 49.4 % MFU, 76,000 tokens/s on 8 devices"."""
    low, high = (seconds_text(each) for each in found.interval_s)
    text = (
        f"Step {seconds_text(found.step_time_s)} (90 % interval {low} to {high}), {100 * found.mfu:.1f} % MFU"
    )
    if found.tokens:
        rate = found.tokens / found.step_time_s
        text += f", {rate:,.0f} tokens/s, {rate / found.machine.npus:,.0f} per device"
    return f"{text}, on {format_count(found.machine.npus)} devices"


def memory_text(found: Prediction) -> str:
    """Return "fits: 57.1 GiB of 74.5 GiB, of which 54.2 GiB are allocated at the peak", or that it does not."""
    memory = found.memory
    peak = f"{format_bytes(memory.peak_bytes)} are allocated at the peak"
    if memory.capacity_bytes is None:
        return f"{format_bytes(memory.needed_bytes)}, of which {peak}; the machine does not say what it has"
    word = "fits" if memory.fits else "DOES NOT FIT"
    return f"{word}: {format_bytes(memory.needed_bytes)} of {format_bytes(memory.capacity_bytes)}, of which {peak}"


def plan_text(plan: Plan) -> str:
    """Return a plan in a line: tp 4, pp 2 (virtual 5), dp 64, microbatch 1, zero-1."""
    own = plan.parallel
    parts = [f"{axis} {value}" for axis in ("tp", "pp", "cp", "ep") if (value := getattr(own, axis)) > 1]
    if plan.pipeline.virtual > 1:
        parts.append(f"virtual {plan.pipeline.virtual}")
    parts.append(f"dp {plan.ranks // (own.tp * own.pp * own.cp)}")
    parts += [f"microbatch {plan.microbatch}", plan.data.sharding]
    parts += [] if plan.recompute == "none" else [f"{plan.recompute} recomputation"]
    if plan.numbers.recipe:
        parts.append(f"{plan.numbers.compute} ({plan.numbers.recipe})")
    return ", ".join(parts)


def parts_table(found: Prediction) -> Table:
    """Return what the step consists of, with bars."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify)
    for name in PARTS:
        share = found.parts[name] / found.step_time_s
        if share > 0:
            table.add_row(
                TITLES[name],
                seconds_text(found.parts[name]),
                f"{100 * share:.1f} %",
                "█" * round(BAR * share),
            )
    return table


def plans_table(choice: Choice) -> Table:
    """Return the best plans, and whether the model can tell each from the first."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    columns = ("", "plan", "step", "90 % interval", "MFU", "memory", "slower than the first")
    for name in columns:
        table.add_column(name, justify="left" if name in ("plan", columns[-1]) else "right")
    for number, each in enumerate(choice.plans, 1):
        low, high = (seconds_text(end) for end in each.interval_s)
        memory = format_bytes(each.memory.needed_bytes) + (
            "" if each.memory.fits is not False else " DOES NOT FIT"
        )
        table.add_row(
            str(number), plan_text(each.plan), seconds_text(each.step_time_s), f"{low} to {high}",
            f"{100 * each.mfu:.1f} %", memory, _behind(choice.best, each),
        )  # fmt: skip
    return table


def _behind(best: Prediction, other: Prediction) -> str:
    if other is best:
        return ""
    share = other.step_time_s / best.step_time_s - 1
    sure = tells_apart(best, other)
    return f"{100 * share:.1f} %" + ("" if sure else ", less than the model can tell")


def reasons_table(choice: Choice) -> Table:
    """Return why the others lose: each kind of reason, how many plans it has, and one of them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("plans", "why", "for example"):
        table.add_column(name, justify="right" if name == "plans" else "left")
    groups: dict[str, list[str]] = {}
    for each in choice.rejected:
        groups.setdefault(each.kind, []).append(each.why)
    for kind, whys in groups.items():
        table.add_row(format_count(len(whys)), kind, whys[0])
    return table


def prediction_json(found: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON has it: s, bytes and shares, as the key names say."""
    memory = found.memory
    return {
        "model": found.model,
        "machine": found.machine.name,
        "devices": found.machine.npus,
        "software": found.software.name,
        "step_time_s": found.step_time_s,
        "interval_s": list(found.interval_s),
        "mfu": found.mfu,
        "tokens_per_s": found.tokens / found.step_time_s if found.tokens else None,
        "memory": {
            "peak_bytes": memory.peak_bytes, "reserved_bytes": memory.reserved_bytes,
            "needed_bytes": memory.needed_bytes, "capacity_bytes": memory.capacity_bytes, "fits": memory.fits,
        },
        "parts_s": dict(found.parts),
        "limits": found.limits,
        "plan": keys_of(found.plan),
        "assumptions": list(found.assumptions),
    }  # fmt: skip


def choice_json(choice: Choice) -> dict[str, Any]:
    """Return the best plans and the others as JSON has them."""
    first = choice.best
    return {
        "model": first.model,
        "machine": first.machine.name,
        "devices": first.machine.npus,
        "simulated": choice.simulated,
        "assumptions": list(choice.assumptions),
        "plans": [
            {
                key: value
                for key, value in prediction_json(each).items()
                if key not in ("model", "machine", "devices")
            }
            | {"told_apart": each is first or tells_apart(first, each)}
            for each in choice.plans
        ],
        "rejected": [{"plan": dict(each.plan), "why": each.why} for each in choice.rejected],
    }
