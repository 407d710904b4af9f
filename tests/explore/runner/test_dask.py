"""On Dask of this machine: the rows are those of one process, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.explore.runner import CutShortError, Store, Stored, make_executor, run
from armillary.explore.sweep import Row, Sweep
from armillary.testing.executor import check_executor

pytestmark = pytest.mark.slow
Make = Callable[..., Sweep]
Told = Callable[[list[Row]], list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def dask(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install armillary[dask]")
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)


def rows_of(sweep: Sweep, path: Path, **how: Any) -> list[Row]:
    with Store(path) as store:
        run(sweep, sweep.space.points(), store, **how)
        return store.rows()


def children() -> set[int]:
    """All processes below this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid()}


def listening(processes: set[int]) -> set[str]:
    """The addresses, as the kernel writes them, on which some processes listen."""
    sockets = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                found.add(local.split(":")[0])
    return found


def test_dask_gives_the_rows_of_one_process(small: Make, told: Told, tmp_path: Path) -> None:
    before = children()
    alone = rows_of(small(40), tmp_path / "alone", executor="serial")
    seen: set[str] = set()

    def look(_: Any) -> None:
        seen.update(listening({os.getpid(), *children()} - before))

    found = rows_of(small(40), tmp_path / "dask", executor="dask", workers=2, progress=look)
    assert told(found) == told(alone)
    # 127.0.0.1, in the byte order of the kernel.
    assert seen == {"0100007F"}
    assert not [pid for pid in children() - before if "keeper" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_dask_keeps_to_the_protocol() -> None:
    check_executor(lambda: make_executor("dask", 2))


def test_a_worker_that_is_killed_while_it_holds_points_costs_no_row(small: Make, tmp_path: Path) -> None:
    from strange import Held, held, times_begun  # type: ignore[import-not-found]

    log = tmp_path / "log"
    lost: set[int] = set()

    def lose(_: Any) -> None:
        for worker in () if lost else sorted({int(word) for line in lines(log) for word in line[3:4]}):
            if not lost and (points := held(log, worker)):
                lost.update(points)
                os.kill(worker, signal.SIGKILL)

    rows = rows_of(
        small(40), tmp_path / "s", evaluator=Held({}, log, 0.5), executor="dask", workers=2, progress=lose
    )
    assert [row.status for row in rows] == ["ok"] * 40
    assert lost and all(times_begun(log, number) > 1 for number in lost)


def lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def test_a_scheduler_that_is_gone_ends_the_run_with_what_is_done(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed
    from strange import Strange

    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50
    )
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", cluster.scheduler_address)

    def leave(counts: Any) -> None:
        if counts.simulated > 3:
            cluster.close()

    sweep = small(40)
    with pytest.raises(CutShortError, match=r"executor dask: the scheduler at tcp://127\.0\.0\.1:"):
        rows_of(sweep, tmp_path / "s", evaluator=Strange({}, seconds=0.3), executor="dask", progress=leave)
    with Stored(tmp_path / "s") as store:
        assert 3 < len(store.rows()) < 40
    with pytest.raises(InputError, match=r"executor dask: no scheduler at tcp://127\.0\.0\.1:"):
        rows_of(sweep, tmp_path / "s", executor="dask")
