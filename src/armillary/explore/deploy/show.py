"""Deployments for people and for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.explore.deploy.cost import Bill
from armillary.explore.deploy.deployment import Deployments
from armillary.explore.deploy.flags import launch
from armillary.serving.result import seconds_text
from armillary.serving.show import serving_json

if TYPE_CHECKING:
    from rich.table import Table


def tried_table(found: Deployments, top: int, bills: Sequence[Bill] | None = None) -> Table:
    """Return the first of those that were tried, and all on the front; with `bills` what each costs."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    which = any(each.words for each in found.tried)
    for name in (
        "",
        "replicas",
        *(["engine"] if which else []),
        "devices",
        "good",
        "TTFT",
        "TPOT",
        "tokens/s per device",
        "per user",
        *(["$ per million"] if bills else []),
        "front",
    ):
        table.add_column(name, justify="left" if name in ("replicas", "engine", "front") else "right")
    for number, (each, (_, values), on) in enumerate(
        zip(found.tried, found.rows(), found.front, strict=True), 1
    ):
        if number > top and not on:
            continue
        devices, good, ttft, tpot, device, user = values
        cost = [_dollars(bills[number - 1].per_output)] if bills else []
        table.add_row(
            str(number), each.replicas, *([each.words] if which else []), f"{devices:.0f}", f"{100 * good:.1f} %",
            seconds_text(ttft), seconds_text(tpot), f"{device:,.1f}", "-" if math.isnan(user) else f"{user:,.1f}",
            *cost, "*" if on else "",
        )  # fmt: skip
    return table


def _dollars(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}"


def reasons(found: Deployments) -> list[tuple[list[str], str]]:
    """Return kinds of replicas that cannot be, and why: of those of one reason the words for the last."""
    groups: dict[str, list[str]] = {}
    for kind, why in found.rejected.items():
        groups.setdefault(why.partition(":")[0], []).append(kind)
    return [(kinds, found.rejected[kinds[-1]]) for kinds in groups.values()]


def deployments_json(found: Deployments, bills: Sequence[Bill] | None = None) -> dict[str, Any]:
    """Return deployments as JSON has them: `best` as of served requests, and one entry for each that was tried."""
    keys = ("devices", "good", "ttft_s", "tpot_s", "output_tokens_per_s_device", "tokens_per_s_user")
    tried = []
    of: Sequence[Bill | None] = bills or [None] * len(found.tried)
    for each, (name, values), on, cost in zip(found.tried, found.rows(), found.front, of, strict=True):
        before = each.service.prefill
        tried.append(
            {
                "name": name, "meets": each.meets, "front": on,
                "replicas": each.service.replicas, "tp": each.service.plan.parallel.tp,
                "dp": each.service.engine.ranks, "engine": each.service.engine.rule,
                "precision": each.service.plan.numbers.compute, "budget": each.service.engine.budget,
                "sequences": each.service.engine.sequences,
                "prefill": before
                and {
                    "replicas": before.replicas, "tp": before.plan.parallel.tp, "dp": before.engine.ranks,
                },
                **({"cost": cost.json()} if cost else {}),
                **{
                    key: None if math.isnan(value) else value for key, value in zip(keys, values, strict=True)
                },
            }
        )  # fmt: skip
    return {
        "share": found.best.share, "meets": found.best.meets, "best": serving_json(found.best.served),
        "launch": launch(found.best.service), "assumptions": list(found.assumptions), "tried": tried,
        "rejected": dict(found.rejected),
    }  # fmt: skip
