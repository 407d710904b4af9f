from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.explore.sweep import Row, Sweep, load_sweep

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def strange_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a run import what they are to do by its name."""
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop("strange", None)


def document(count: int = 12, **more: Any) -> dict[str, Any]:
    """A small real sweep: one all-reduce on rings, of which each fourth point is rejected."""
    sizes = [f"{2 ** (at + 1)} MB" for at in range(count // 4)]
    return {
        "study": {
            "workload": {"collective": "all-reduce", "size": "1 MB"},
            "platform": {
                "network": [
                    {"name": "ring", "topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}
                ]
            },
        },
        "vary": {
            "workload.size": sizes,
            "platform.network.ring.size": {"values": [2, 4, 8, 16], "name": "ring"},
        },
        "where": ["npus <= 8"],
        **more,
    }


@pytest.fixture
def small() -> Callable[..., Sweep]:
    def make(count: int = 12, **more: Any) -> Sweep:
        return load_sweep(document(count, **more))

    return make


def _told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(r.number, dict(r.values), r.key, r.status, r.reason, dict(r.measures)) for r in rows]


@pytest.fixture
def told() -> Callable[[list[Row]], list[tuple[Any, ...]]]:
    """Rows without the time that they took."""
    return _told
