"""On a real Ray of two nodes on this machine: the rows are those of one process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from armillary.explore.runner import Store, make_executor, run
from armillary.explore.sweep import Row, Sweep
from armillary.testing.executor import check_executor

pytestmark = pytest.mark.slow
Make = Callable[..., Sweep]
Told = Callable[[list[Row]], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, on 127.0.0.1; all files in one short temporary folder (sockets have short names)."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    (folder / "ray").mkdir()
    before = dict(os.environ)
    here = str(Path(__file__).parent)
    # The last one makes Ray stay on the loopback, whatever the name says.
    alone = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    os.environ |= {"RAY_TMPDIR": str(folder), **alone}
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    # Workers of the nodes import the program, and what tests let them do, from where we do.
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [before.get("PYTHONPATH")])])
    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}
    made = cluster_utils.Cluster()
    try:
        made.add_node(**node, include_dashboard=False, temp_dir=str(folder / "ray"))
        made.add_node(**node)
        os.environ["RAY_ADDRESS"] = made.address
        yield made
    finally:
        import ray

        ray.shutdown()
        made.shutdown()
        os.environ.clear()
        os.environ |= before
        shutil.rmtree(folder, ignore_errors=True)


def rows_of(sweep: Sweep, path: Path, **how: Any) -> list[Row]:
    with Store(path) as store:
        run(sweep, sweep.space.points(), store, **how)
        return store.rows()


def test_ray_gives_the_rows_of_one_process(cluster: Any, small: Make, told: Told, tmp_path: Path) -> None:
    alone = rows_of(small(80), tmp_path / "alone", executor="serial")
    assert told(rows_of(small(80), tmp_path / "ray", executor="ray")) == told(alone)


def test_ray_keeps_to_the_protocol(cluster: Any) -> None:
    check_executor(lambda: make_executor("ray"))


def test_limits_and_crashes_are_as_they_are_here(
    cluster: Any, small: Make, told: Told, tmp_path: Path
) -> None:
    from strange import Strange  # type: ignore[import-not-found]

    sweep = small(20, limits={"time": "10 s", "memory": "800 MiB"})
    evaluator = Strange({1: "crash", 2: "hang", 3: "raise", 5: "eat", 7: "exit"})
    here = rows_of(sweep, tmp_path / "here", evaluator=evaluator, workers=2)
    there = rows_of(sweep, tmp_path / "there", evaluator=evaluator, executor="ray")
    assert told(there) == told(here)
    assert [row.status for row in there[:8]] == [
        "ok",
        "failed",
        "timeout",
        "failed",
        "ok",
        "memory",
        "ok",
        "failed",
    ]


def test_a_lost_node_costs_no_row(cluster: Any, small: Make, told: Told, tmp_path: Path) -> None:
    from strange import Strange

    sweep = small(40)
    third = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1")
    lost = []

    def lose(counts: Any) -> None:
        if counts.simulated > 5 and not lost:
            lost.append(cluster.remove_node(third, allow_graceful=False))

    rows = rows_of(sweep, tmp_path / "s", evaluator=Strange({}, seconds=0.1), executor="ray", progress=lose)
    assert lost and [row.status for row in rows] == ["ok"] * 40
