"""The file: what it says, who may write to it, and which work it knows again."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.explore.runner import Store, Stored, run
from armillary.explore.runner.identity import Identities
from armillary.explore.sweep import Sweep, load_sweep

Make = Callable[..., Sweep]


def fill(sweep: Sweep, path: Path) -> int:
    """Run it, and return how many points were not known."""
    with Store(path) as store:
        return run(sweep, sweep.space.points(), store, executor="serial").screened


def test_results_have_a_column_for_each_value_and_measure(small: Make, tmp_path: Path) -> None:
    fill(small(), tmp_path / "s")
    base = sqlite3.connect(tmp_path / "s")
    found = base.execute(
        "SELECT number, ring, size, status, step_time FROM results WHERE status = 'ok' LIMIT 1"
    )
    number, ring, size, status, time = found.fetchone()
    assert (number, ring, size, status) == (0, 2, "2 MB", "ok") and 0 < time < 1
    best = base.execute("SELECT min(step_time / npus) FROM results WHERE ring > 2").fetchone()[0]
    assert best > 0
    base.close()


def test_one_writer_at_a_time_and_the_other_is_told_who(small: Make, tmp_path: Path) -> None:
    with Store(tmp_path / "s"):
        with pytest.raises(
            InputError, match=rf"process {os.getpid()} on .* is writing to it, expected one writer"
        ):
            Store(tmp_path / "s")
        other = f"from armillary.explore.runner import Store; Store({str(tmp_path / 's')!r})"
        done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
        assert f"process {os.getpid()} on" in done.stderr
    assert not (tmp_path / "s.lock").exists()
    Store(tmp_path / "s").close()


def test_a_writer_that_was_killed_locks_nobody_out(tmp_path: Path) -> None:
    opens = f"import os; from armillary.explore.runner import Store; Store({str(tmp_path / 's')!r})"
    subprocess.run([sys.executable, "-c", f"{opens}; os.kill(os.getpid(), 9)"], check=False)
    assert (tmp_path / "s.lock").exists()
    Store(tmp_path / "s").close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a database, but long enough to be taken for one", "another kind of file"),
        (None, "another database"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "s"
    if content is None:
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE mine(x)")
        base.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    for kind in (Store, Stored):
        with pytest.raises(InputError, match=message):
            kind(path)
    assert path.read_bytes() == before and not (tmp_path / "s.lock").exists()


def test_another_layout_and_missing_places_are_refused(tmp_path: Path) -> None:
    Store(tmp_path / "s").close()
    base = sqlite3.connect(tmp_path / "s")
    base.execute("PRAGMA user_version = 7")
    base.close()
    with pytest.raises(InputError, match="has layout 7 of another version, expected layout 1"):
        Store(tmp_path / "s")
    with pytest.raises(InputError, match="there is no such store"):
        Stored(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be written"):
        Store(tmp_path / "s" / "t")
    Store(tmp_path / "new" / "s").close()
    assert (tmp_path / "new" / "s").exists()
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path)


def test_a_changed_sweep_finds_the_work_that_is_the_same(small: Make, tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert fill(small(12), path) == 12
    assert fill(small(20), path) == 8
    assert fill(small(12, objectives=["minimize npus"], limits={}), path) == 0
    assert fill(small(12, where=["npus <= 4"]), path) == 12
    assert fill(small(12, tokens="1 T"), path) == 12
    assert fill(small(12), path) == 0
    with Stored(path) as store:
        assert len(store.rows()) == 12 and len(store.rows(2)) == 20


def test_a_file_that_a_study_names_is_part_of_the_work(tmp_path: Path) -> None:
    def key(at: Path) -> str:
        sweep = load_sweep(at)
        return Identities(sweep).of(next(iter(sweep.space.points()))).work

    (tmp_path / "sweep.yaml").write_text(
        "study:\n  workload: {trace: step}\n"
        "  platform: {network: [{topology: Ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}]}\n"
    )
    none = key(tmp_path / "sweep.yaml")
    (tmp_path / "step.0.et").write_bytes(b"one")
    one = key(tmp_path / "sweep.yaml")
    (tmp_path / "step.0.et").write_bytes(b"two")
    (tmp_path / "step.sqlite").write_bytes(b"a store beside it is not")
    two = key(tmp_path / "sweep.yaml")
    (tmp_path / "step.sqlite").write_bytes(b"part of the work")
    assert len({none, one, two}) == 3 and key(tmp_path / "sweep.yaml") == two


def test_rows_that_cannot_be_written_leave_nothing(small: Make, tmp_path: Path) -> None:
    sweep = small()
    points = list(sweep.space.points())
    known = Identities(sweep)
    from armillary.explore.sweep import Row

    good = Row(0, points[0].values, points[0].key, "ok", "", {"step_time": 1.0})
    bad: Any = Row(1, points[1].values, points[1].key, "ok", "", {"step_time": float("nan")})
    with Store(tmp_path / "s") as store:
        store.ask(store.begin(sweep), [(point, known.of(point)) for point in points])
        with pytest.raises(ValueError):
            store.add([(known.of(points[0]), good), (known.of(points[1]), bad)])
        assert store.rows() == []
        store.add([(known.of(points[0]), good)])
        assert store.rows() == [good]


def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(small: Make, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    fill(small(), folder / "s")
    folder.chmod(0o555)
    try:
        with Stored(folder / "s") as store:
            assert len(store.rows()) == 12
    finally:
        folder.chmod(0o755)
