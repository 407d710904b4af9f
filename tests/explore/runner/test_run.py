"""One run: every point becomes one row, whatever it does and wherever it is done."""

from __future__ import annotations

import concurrent.futures
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.explore.runner import Store, Stored, run, screen
from armillary.explore.runner.executor import Executor
from armillary.explore.runner.executors import make_executor
from armillary.explore.sweep import Row, Sweep
from armillary.testing.executor import check_executor

Make = Callable[..., Sweep]
Told = Callable[[list[Row]], list[tuple[Any, ...]]]
SERIAL = {"executor": "serial"}


def rows_of(sweep: Sweep, path: Path, **how: Any) -> list[Row]:
    with Store(path) as store:
        run(sweep, sweep.space.points(), store, **how)
        return store.rows()


def test_real_points_are_done_in_the_order_of_the_space_and_once(small: Make, tmp_path: Path) -> None:
    sweep = small()
    rows = rows_of(sweep, tmp_path / "s", **SERIAL)
    assert [row.number for row in rows] == list(range(12))
    assert [row.status for row in rows] == ["ok", "ok", "ok", "rejected"] * 3
    times = [row.measures["step_time"] for row in rows if row.status == "ok"]
    assert times == sorted(times) and len(set(times)) == 9
    with Store(tmp_path / "s") as store:
        counts = run(sweep, sweep.space.points(), store, evaluator=None, executor="no such one is asked")
        assert (counts.points, counts.known, counts.screened) == (12, 12, 0)
        assert store.rows() == rows


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_give_the_rows_of_one_process(
    small: Make, told: Told, tmp_path: Path, workers: int
) -> None:
    sweep = small(80)
    alone = rows_of(sweep, tmp_path / "alone", **SERIAL)
    assert told(rows_of(sweep, tmp_path / "many", workers=workers)) == told(alone)


def test_executors_of_concurrent_futures_give_the_rows_of_one_process(
    small: Make, told: Told, tmp_path: Path
) -> None:
    sweep = small(40, limits={"time": "60 s"})
    alone = rows_of(small(40), tmp_path / "alone", **SERIAL)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert told(rows_of(sweep, tmp_path / "threads", executor=threads)) == told(alone)
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        assert told(rows_of(sweep, tmp_path / "processes", executor=processes)) == told(alone)


def strange(does: dict[int, str], **more: Any) -> Any:
    from strange import Strange  # type: ignore[import-not-found]

    return Strange(does, **more)


def test_a_point_that_fails_costs_itself_only(small: Make, tmp_path: Path) -> None:
    does = {
        1: "crash", 3: "raise", 5: "exit", 7: "out of memory", 9: "reject", 11: "not a number", 13: "crash in screen",
    }  # fmt: skip
    rows = rows_of(small(20), tmp_path / "s", evaluator=strange(does), workers=2)
    assert [row.number for row in rows] == list(range(20))
    other = {row.number: (row.status, row.reason) for row in rows if row.status != "ok"}
    assert other == {
        1: ("failed", "its process was ended by SIGSEGV"),
        3: ("failed", "KeyError: 'lost'"),
        5: ("failed", "its process ended with exit code 7"),
        7: ("memory", "not enough memory"),
        9: ("rejected", "not wanted"),
        11: ("failed", "mfu is nan"),
        13: ("failed", "its process was ended by SIGSEGV"),
    }


def test_a_point_over_the_limit_of_time_is_ended_and_the_rest_goes_on(small: Make, tmp_path: Path) -> None:
    evaluator = strange({2: "hang", 6: "spin", 7: "crash"})
    rows = rows_of(small(12, limits={"time": "5 s"}), tmp_path / "s", evaluator=evaluator, workers=2)
    assert len(rows) == 12
    assert {row.number: (row.status, row.reason) for row in rows if row.status != "ok"} == {
        2: ("timeout", "over the limit of 5 s"),
        6: ("timeout", "over the limit of 5 s"),
        7: ("failed", "its process was ended by SIGSEGV"),
    }
    assert rows[2].seconds >= 5


def test_a_point_over_the_limit_of_memory_is_ended_and_the_rest_goes_on(small: Make, tmp_path: Path) -> None:
    sweep = small(12, limits={"memory": "700 MiB"})
    rows = rows_of(sweep, tmp_path / "s", evaluator=strange({4: "eat"}), workers=2)
    assert [row.status for row in rows] == ["ok"] * 4 + ["memory"] + ["ok"] * 7
    assert rows[4].reason == "over the limit of 700 MiB"


def test_memory_that_others_left_behind_is_no_points_fault(small: Make, tmp_path: Path) -> None:
    from strange import Leaky

    rows = rows_of(small(8, limits={"memory": "600 MiB"}), tmp_path / "s", evaluator=Leaky(), workers=1)
    assert [row.status for row in rows] == ["ok"] * 8


def test_other_limits_and_retry_do_again_what_they_can_change(small: Make, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def again(does: dict[int, str], seconds: str, **how: Any) -> list[str]:
        sweep = small(8, limits={"time": seconds})
        rows = rows_of(sweep, tmp_path / "s", evaluator=strange(does, log=log), workers=1, **how)
        return [row.status for row in rows]

    assert again({1: "hang", 2: "crash"}, "5 s") == ["ok", "timeout", "failed", *["ok"] * 5]
    log.unlink()
    assert again({}, "5 s") == ["ok", "timeout", "failed", *["ok"] * 5]
    assert not log.exists()
    assert again({}, "600 s") == ["ok", "ok", "failed", *["ok"] * 5]
    assert log.read_text() == "1\n"
    assert again({}, "600 s", retry=True) == ["ok"] * 8
    assert log.read_text() == "1\n2\n"


def test_what_starts_nowhere_says_why(small: Make, tmp_path: Path) -> None:
    from strange import Unreadable

    with pytest.raises(InputError, match="cannot begin: ValueError: this was written by another version"):
        rows_of(small(), tmp_path / "s", evaluator=Unreadable({}), workers=1)
    with pytest.raises(InputError, match=r"no executor 'processs', expected one of processes"):
        rows_of(small(), tmp_path / "s", executor="processs")
    with pytest.raises(InputError, match="workers: got 0, expected 1 or more"):
        rows_of(small(), tmp_path / "s", workers=0)
    with pytest.raises(InputError, match=r"limits \(1 s\): executor serial cannot keep them"):
        rows_of(small(12, limits={"time": "1 s"}), tmp_path / "s", **SERIAL)


def test_a_dead_keeper_is_replaced(small: Make, tmp_path: Path) -> None:
    sweep = small(12)
    executor: Any = make_executor("processes", 2)
    killed = []

    def kill_once(counts: Any) -> None:
        if counts.simulated >= 3 and not killed:
            killed.append(executor._seat._keeper.kill())

    with Store(tmp_path / "s") as store:
        run(
            sweep,
            sweep.space.points(),
            store,
            evaluator=strange({}, seconds=0.02),
            executor=executor,
            progress=kill_once,
        )
        assert killed and [row.status for row in store.rows()] == ["ok"] * 12


def test_screening_keeps_nothing(small: Make) -> None:
    sweep = small(20)
    found = list(screen(sweep, sweep.space.points(), workers=1))
    assert len(found) == 20 and sum(row is not None for _, row in found) == 5


def test_points_of_one_study_are_one_work(small: Make, tmp_path: Path) -> None:
    same = {"platform.network.ring.latency": "2 us"}
    sweep = small(
        4,
        vary={"workload.size": {"values": ["1 MB", "2 MB"]}, "name": {"choices": {"a": same, "b": same}}},
        where=[],
    )
    log = tmp_path / "log"
    rows = rows_of(sweep, tmp_path / "s", evaluator=strange({}, log=log), **SERIAL)
    assert [row.number for row in rows] == [0, 1, 2, 3] and len(log.read_text().split()) == 2
    assert rows[0].key == rows[1].key != rows[2].key and rows[1].values["name"] == "b"


def test_readers_see_whole_rows_while_it_runs(small: Make, tmp_path: Path) -> None:
    sweep = small(12)
    seen = []

    def look(_: object) -> None:
        with Stored(tmp_path / "s") as reader:
            seen.append(len(reader.rows()))
        base = sqlite3.connect(f"file:{tmp_path / 's'}?mode=ro", uri=True)
        assert base.execute("SELECT count(*) FROM results").fetchone() == (seen[-1],)
        base.close()

    with Store(tmp_path / "s") as store:
        run(sweep, sweep.space.points(), store, **SERIAL, progress=look)  # type: ignore[arg-type]
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 12 and len(set(seen)) > 8


class Late(Executor):
    """Gives everything at the end, last task first."""

    slots = 4
    inner: Executor = make_executor("serial")

    def start(self, job: Any) -> None:
        self.inner = make_executor("serial")
        self.inner.start(job)
        self.held: list[Any] = []

    def submit(self, number: int, task: Any) -> None:
        self.inner.submit(number, task)

    def wait(self, seconds: float) -> list[Any]:
        while found := self.inner.wait(seconds):
            self.held += found
        given, self.held = self.held[::-1], []
        return given

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize(
    "make", [Late, lambda: make_executor("serial"), lambda: make_executor("processes", 2)]
)
def test_executors_keep_to_the_protocol(make: Callable[[], Executor]) -> None:
    check_executor(make)


def test_the_check_of_executors_finds_points_that_are_lost_or_changed() -> None:
    class Loses(Late):
        def wait(self, seconds: float) -> list[Any]:
            return [each for each in super().wait(seconds) for _ in range(2)]

    with pytest.raises((AssertionError, KeyError)):
        check_executor(Loses)


def test_an_executor_of_ones_own_may_answer_in_any_order(small: Make, told: Told, tmp_path: Path) -> None:
    alone = rows_of(small(80), tmp_path / "alone", **SERIAL)
    assert told(rows_of(small(80), tmp_path / "late", executor=Late())) == told(alone)
