"""TCP whose queues drop, against ns-3: distributions over many runs, as a timeout decides over most of a time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from armillary.engine.transport.ns3 import library

BENCHMARK = Path(__file__).parents[4] / "benchmarks/tcp_distributions.py"
RUNS = 60


@pytest.fixture(scope="module")
def compared() -> ModuleType:
    """Return the benchmark, which draws the networks and knows the test of distributions."""
    spec = importlib.util.spec_from_file_location("tcp_distributions", BENCHMARK)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_distance_of_distributions(compared: ModuleType) -> None:
    draws = np.random.default_rng(0)
    one, other = draws.normal(size=200), draws.normal(size=200)
    assert compared.kolmogorov(one, one) == (0.0, 1.0)
    assert compared.kolmogorov(one, other)[1] > 0.05
    assert compared.kolmogorov(one, other + 1)[1] < 1e-6
    # By hand: of 1, 2, 3 all are below 2.5 but one, of 3, 4, 5 none.
    assert compared.kolmogorov(np.array([1.0, 2, 3]), np.array([3.0, 4, 5]))[0] == pytest.approx(2 / 3)


@pytest.mark.slow
@pytest.mark.skipif(not library.available(), reason="needs ns-3: pip install armillary[ns3]")
def test_messages_and_timeouts_are_distributed_as_in_ns3(compared: ModuleType) -> None:
    case = compared.CASES["light"]
    ours, theirs = compared.both(case, RUNS)
    assert (ours[:, -1] > 0).all() and (theirs[:, -1] > 0).all()
    late = [(rows[:, :-1] > 1e3 * case.min_rto).sum(axis=1).astype(float) for rows in (ours, theirs)]
    assert compared.kolmogorov(*late)[1] > 0.05
    assert compared.kolmogorov(ours[:, :-1].ravel(), theirs[:, :-1].ravel())[1] > 0.05
