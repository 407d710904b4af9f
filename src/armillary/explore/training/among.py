"""Plans in a file: a YAML or JSON list of mappings with the keys of a plan, or an object with such a list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.base.document import read_document
from armillary.explore.training.plan_keys import nested

MOST = 10_000
"""Most plans of a file: each is simulated."""


def read_plans(path: Path) -> list[dict[str, Any]]:
    """Return the keys of each plan of a file.

    Raises:
        InputError: it cannot be read, or holds no list of mappings.
    """
    document = read_document(path, "file of plans", "yaml", listed="plans")
    plans = document.data.get("plans")
    if not isinstance(plans, list) or not plans:
        document.reject(("plans",), plans, "a list of plans")
    if len(plans) > MOST:
        document.reject(("plans",), len(plans), f"at most {MOST:,} plans")
    found = []
    for number, each in enumerate(plans):
        # As `--json` writes them, a plan stands beside its time.
        own = each.get("plan", each) if isinstance(each, Mapping) else each
        if not isinstance(own, Mapping):
            document.reject(("plans", number), each, "a mapping of keys to values")
        # The ranks are those of the machine.
        found.append(nested({key: value for key, value in own.items() if key != "ranks"}))
    return found
