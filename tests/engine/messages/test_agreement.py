"""The bars of the agreement tables in docs/validation/networks.md, on some of their rows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from armillary.engine.transport.ns3 import library

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "agreement_workloads.py"
needs_ns3 = pytest.mark.skipif(not library.available(), reason="needs ns-3: pip install armillary[ns3]")


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("pattern", "network"), [("hierarchical all-reduce", "torus"), ("incast", "leaf-spine 4:1")]
)
def test_flows_agree_with_packets(table: ModuleType, pattern: str, network: str) -> None:
    case = next(c for c in table.cases(8) if (c.pattern, c.network) == (pattern, network))
    row = table.compared(case, table.PAIRS["headers"])
    assert 0.0 < abs(row["error"]) < 0.05, row


@needs_ns3
def test_runs_over_ns3_follow_each_other_and_count_the_use_of_links(table: ModuleType) -> None:
    case = next(c for c in table.cases(8) if (c.pattern, c.network) == ("permutation", "leaf-spine"))
    for name, bar in (("udp", 0.001), ("tcp", 0.02), ("udp", 0.001)):
        pair = table.PAIRS[name]
        ours, _ = table.simulated(case, pair.model, pair.packets)
        its, _ = table.simulated(case, pair.other, pair.packets)
        assert its.total_ticks == pytest.approx(ours.total_ticks, rel=bar)
        if name == "udp":
            assert (its.network.use.size == ours.network.use.size).all()
            assert its.network.use.busy.sum() == pytest.approx(ours.network.use.busy.sum(), rel=1e-6)
        assert 0.9 < its.network.peak.max() < 1.05
        np.testing.assert_array_equal(its.network.use.series.sum(axis=1), its.network.use.size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["flow", "headers", pytest.param("udp", marks=needs_ns3), pytest.param("tcp", marks=needs_ns3)]
)
def test_models_agree_on_whole_workloads(table: ModuleType, name: str) -> None:
    rows = [table.compared(case, table.PAIRS[name]) for case in table.cases(16)]
    assert [row for row in rows if not row["ok"]] == []
    assert 0.0 < table.summary(name, rows)["mean"] <= 0.05
