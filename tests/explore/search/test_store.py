"""A search that keeps what it simulates in a store of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import armillary

SWEEP: dict[str, Any] = {
    "study": {
        "workload": {"collective": "all-reduce", "size": "1 MB"},
        "platform": {"network": [{"topology": "Ring", "size": 4, "bandwidth": "10 GB/s", "latency": "1 us"}]},
    },
    "vary": {
        "workload.size": ["1 MB", "2 MB", "3 MB"],
        "platform.network.0.size": {"values": [2, 4, 8], "name": "ring"},
    },
    "objectives": ["minimize step_time", "maximize npus"],
}


def test_a_store_and_more_workers_change_nothing_and_work_is_done_once(tmp_path: Path) -> None:
    here = armillary.search(SWEEP)
    store = tmp_path / "points.sqlite"
    kept = armillary.search(SWEEP, store=store, workers=2)
    assert [row.number for row in kept.best] == [row.number for row in here.best]
    assert [row.measures for row in kept.best] == [row.measures for row in here.best]
    before = store.read_bytes()
    again = armillary.search(SWEEP, store=store, workers=2)
    assert [row.seconds for row in again.best] == [row.seconds for row in kept.best]
    assert len(store.read_bytes()) == len(before)
