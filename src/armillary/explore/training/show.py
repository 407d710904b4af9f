"""Predicted steps for people and for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bytes, format_count
from armillary.explore.training.choose import Choice
from armillary.explore.training.parts import TITLES, shown
from armillary.explore.training.prediction import (
    Prediction,
    behind,
    plan_text,
    seconds_text,
    tells_apart,
)
from armillary.workload.plan.request import keys_of

if TYPE_CHECKING:
    from rich.table import Table

BAR = 30
"""Characters of the longest bar."""


def parts_table(found: Prediction) -> Table:
    """Return what the step consists of, with bars."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify)
    parts = shown(found.parts)
    for name in parts:
        share = parts[name] / found.step_time_s
        if share > 0:
            table.add_row(
                TITLES[name],
                seconds_text(parts[name]),
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
            f"{100 * each.mfu:.1f} %", memory, behind(choice.best, each),
        )  # fmt: skip
    return table


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
        "approximate": found.approximate,
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
