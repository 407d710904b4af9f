"""Deployments for people and for JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from armillary.explore.deploy.choose import Deployments
from armillary.explore.deploy.flags import launch
from armillary.serving.result import seconds_text
from armillary.serving.show import serving_json

if TYPE_CHECKING:
    from rich.table import Table


def tried_table(found: Deployments, top: int) -> Table:
    """Return the first of those that were tried, and all on the front."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in (
        "",
        "replicas",
        "devices",
        "good",
        "TTFT",
        "TPOT",
        "tokens/s per device",
        "per user",
        "front",
    ):
        table.add_column(name, justify="left" if name in ("replicas", "front") else "right")
    for number, ((name, values), on) in enumerate(zip(found.rows(), found.front, strict=True), 1):
        if number > top and not on:
            continue
        devices, good, ttft, tpot, device, user = values
        table.add_row(
            str(number), name, f"{devices:.0f}", f"{100 * good:.1f} %", seconds_text(ttft), seconds_text(tpot),
            f"{device:,.1f}", "-" if math.isnan(user) else f"{user:,.1f}", "*" if on else "",
        )  # fmt: skip
    return table


def reasons(found: Deployments) -> list[tuple[list[str], str]]:
    """Return kinds of replicas that cannot be, and why: of those of one reason the words for the last."""
    groups: dict[str, list[str]] = {}
    for kind, why in found.rejected.items():
        groups.setdefault(why.partition(":")[0], []).append(kind)
    return [(kinds, found.rejected[kinds[-1]]) for kinds in groups.values()]


def deployments_json(found: Deployments) -> dict[str, Any]:
    """Return deployments as JSON has them: `best` as of served requests, and one entry for each that was tried."""
    keys = ("devices", "good", "ttft_s", "tpot_s", "output_tokens_per_s_device", "tokens_per_s_user")
    tried = []
    for each, (name, values), on in zip(found.tried, found.rows(), found.front, strict=True):
        before = each.service.prefill
        tried.append(
            {
                "name": name, "meets": each.meets, "front": on,
                "replicas": each.service.replicas, "tp": each.service.plan.parallel.tp,
                "dp": each.service.engine.ranks,
                "prefill": before
                and {
                    "replicas": before.replicas, "tp": before.plan.parallel.tp, "dp": before.engine.ranks,
                },
                **{
                    key: None if math.isnan(value) else value for key, value in zip(keys, values, strict=True)
                },
            }
        )  # fmt: skip
    return {
        "share": found.best.share, "meets": found.best.meets, "best": serving_json(found.best.served),
        "launch": launch(found.best.service), "tried": tried, "rejected": dict(found.rejected),
    }  # fmt: skip
