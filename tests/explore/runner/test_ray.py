"""On a real Ray of two nodes on this machine: the rows are those of one process."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import ConsentError, InputError
from armillary.explore.runner import CutShortError, Store, Stored, make_executor, run
from armillary.explore.sweep import Row, Sweep
from armillary.testing.executor import check_executor

pytestmark = pytest.mark.slow
Make = Callable[..., Sweep]
Told = Callable[[list[Row]], list[tuple[Any, ...]]]

# Ray listens on all interfaces: nobody else gets in without the token, and that of the user is not touched.
ALONE = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # A busy machine may take minutes.
    "RAY_raylet_start_wait_time_s": "600",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, on 127.0.0.1; all files in one short temporary folder (sockets have short names)."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    (folder / "ray").mkdir()
    before = dict(os.environ)
    here = str(Path(__file__).parent)
    os.environ |= {"RAY_TMPDIR": str(folder), **ALONE}
    cluster_utils = pytest.importorskip(
        "ray.cluster_utils", reason="Ray is not installed: pip install armillary[ray]"
    )
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


def test_ray_has_the_consent_of_whoever_starts_the_run(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_consent import statuses  # type: ignore[import-not-found]

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConsentError, match=r"names the program '.*python.*--allow-programs"):
        statuses(tmp_path, "ray")
    with armillary.allow(programs=True):
        assert statuses(tmp_path, "ray") == ["ok", "ok"]


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


def test_a_node_that_is_killed_while_it_holds_points_costs_no_row(
    cluster: Any, small: Make, tmp_path: Path
) -> None:
    from strange import Held, held, times_begun

    sweep, log = small(40), tmp_path / "log"
    third = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1")
    raylet = third.all_processes["raylet"][0].process.pid
    lost: set[int] = set()

    def lose(_: Any) -> None:
        if not lost and held(log, raylet):
            lost.update(held(log, raylet))
            cluster.remove_node(third, allow_graceful=False)

    rows = rows_of(sweep, tmp_path / "s", evaluator=Held({}, log, 1.0), executor="ray", progress=lose)
    assert [row.status for row in rows] == ["ok"] * 40
    # It did hold some: they were begun there, and again elsewhere.
    assert lost and all(times_begun(log, number) > 1 for number in lost)


# A process of its own: Ray ends whoever has started a head and loses it.
HEAD = """
import sys
from ray.cluster_utils import Cluster

made = Cluster()
head = made.add_node(
    num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1", include_dashboard=False, temp_dir=sys.argv[1]
)
processes = {name: [each.process.pid for each in some] for name, some in head.all_processes.items()}
print(made.address, *processes["gcs_server"], *(pid for name in processes for pid in processes[name]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["gcs", "all"])
def test_a_head_that_is_killed_ends_the_run_with_what_is_done(
    small: Make, tmp_path: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install armillary[ray]")
    from strange import Strange

    sweep = small(40)
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    (folder / "ray").mkdir()
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    for name, value in {**ALONE, "RAY_TMPDIR": str(folder), "PYTHONPATH": here}.items():
        monkeypatch.setenv(name, value)
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD, str(folder / "ray")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert head.stdout
    address, gcs, *others = head.stdout.readline().split()
    monkeypatch.setenv("RAY_ADDRESS", address)

    def end(*processes: str) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def kill(counts: Any) -> None:
        if counts.simulated > 3:
            end(*([gcs] if killed == "gcs" else others))

    try:
        evaluator = Strange({}, seconds=0.3)
        with pytest.raises(CutShortError, match=f"executor ray: the .*cluster at {address}"):
            rows_of(sweep, tmp_path / "s", evaluator=evaluator, executor="ray", progress=kill)
    finally:
        end(str(head.pid), *others)
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)
    with Stored(tmp_path / "s") as store:
        assert 3 < len(store.rows()) < 40
    assert len(rows_of(sweep, tmp_path / "s", evaluator=Strange({}), workers=2)) == 40


def test_no_cluster_is_started_and_none_that_is_gone_is_waited_for(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    for address, message in (
        ("", "RAY_ADDRESS names none; expected HOST:PORT"),
        ("local", "RAY_ADDRESS names none"),
        ("127.0.0.1:9", "nothing answers at 127.0.0.1:9, expected the address of a running cluster"),
        ("somewhere", "RAY_ADDRESS is 'somewhere', expected the address of a running cluster"),
    ):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=message):
            rows_of(small(12), tmp_path / "s", executor="ray")
