"""A store that is damaged, or whose disk is full: what is whole is kept, and what is lost is said."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from armillary.base.errors import InputError
from armillary.explore.runner import CutShortError, Store, Stored, run
from armillary.explore.runner.identity import Identities, Identity
from armillary.explore.runner.salvage import salvage
from armillary.explore.sweep import Row, Sweep

Make = Callable[..., Sweep]
Told = Callable[[list[Row]], list[tuple[Any, ...]]]
MANY = 400


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several hundred pages: every point is done, by nobody."""
    from armillary.explore.sweep import load_sweep

    sizes = [f"{2 + at} MB" for at in range(MANY)]
    ring = {"name": "ring", "topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}
    study = {"workload": {"collective": "all-reduce", "size": "1 MB"}, "platform": {"network": [ring]}}
    sweep = load_sweep({"study": study, "vary": {"workload.size": sizes}})
    path = tmp_path_factory.mktemp("filled") / "s"
    known = Identities(sweep)
    with Store(path) as store:
        points = [(point, known.of(point)) for point in sweep.space.points()]
        store.ask(store.begin(sweep), points)
        for point, identity in points:
            measures = {"step_time": 1.0 + point.number}
            store.add([(identity, Row(point.number, point.values, point.key, "ok", "", measures, 0.5))])
    return path


def copy(filled: Path, folder: Path) -> Path:
    path = folder / "s"
    path.write_bytes(filled.read_bytes())
    return path


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    chance = random.Random(how)
    match how:
        case "header":
            data[:100] = bytes(100)
        case "cut":
            del data[len(data) * 3 // 4 :]
        case "page":
            at = len(data) // 4096 // 2 * 4096
            data[at : at + 4096] = bytes(4096)
        case "noise":
            for _ in range(200):
                data[chance.randrange(4096, len(data))] ^= 1 << chance.randrange(8)
        case "roots":
            for page in range(1, 9):
                data[page * 4096 : page * 4096 + 12] = b"\xff" * 12
        case "layout":
            # SQLite says the name of the table whose layout it cannot read, which is no text.
            named = data.replace(b"tablepointspoints", b"tablep\xce ntspoints", 1)
            assert named != data
            data = named.replace(b"CREATE TABLE points", b"CREATE TABEL points", 1)
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["header", "cut", "page", "noise", "roots", "layout"])
def test_what_is_whole_is_kept_and_the_rest_is_said(
    filled: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stored(filled) as store:
        good = {row.number: row for row in store.rows()}
    path = copy(filled, tmp_path)
    damage(path, how)
    before = path.read_bytes()
    with Stored(path) as store:
        shown = store.rows()
    assert path.read_bytes() == before and f"{path}: is damaged" in capsys.readouterr().err
    with Store(path) as mended:
        rows = mended.rows()
        kept = mended.done()
    said = capsys.readouterr().err
    assert f"{path}: was damaged" in said and f"{len(kept):,} results are whole and kept" in said
    assert (tmp_path / "s.damaged").read_bytes() == before
    # No row has changed, and of those on pages that are whole none is lost.
    assert all(row == good[row.number] for row in (*shown, *rows))
    expected = {
        "header": MANY,
        "roots": MANY * 0.8,
        "layout": MANY * 0.8,
        "page": MANY - 30,
        "cut": MANY / 4,
        "noise": MANY / 3,
    }
    assert len(kept) >= expected[how]
    with Store(path) as again:
        assert again.rows() == rows
    assert capsys.readouterr().err == "" and not (tmp_path / "s.damaged1").exists()


def test_a_row_that_has_changed_is_not_believed(filled: Path, tmp_path: Path, capsys: Any) -> None:
    path = copy(filled, tmp_path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE work SET measures = '{\"step_time\": 7.0}' WHERE id = 5")
        base.execute('UPDATE points SET vals = \'{"size": "9 GB"}\' WHERE number = 8')
        base.commit()
    with Stored(path) as stored:
        numbers = [row.number for row in stored.rows()]
    assert len(numbers) == MANY - 2 and 4 not in numbers and 8 not in numbers
    assert "2 rows are damaged and left out" in capsys.readouterr().err
    with Store(path) as store:
        assert len(store.done()) == MANY - 1
    assert "1 rows of work are damaged; their points are done again" in capsys.readouterr().err


def test_a_text_that_is_none_ends_no_sweep(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("UPDATE points SET point = CAST(x'ff' AS TEXT) WHERE number = 8")
        base.commit()
    with Store(path) as store:
        assert {row.number for row in store.rows()} == set(range(MANY)) - {8}


def test_points_that_were_lost_are_done_again(small: Make, told: Told, tmp_path: Path, capsys: Any) -> None:
    path, sweep = tmp_path / "s", small(40)
    with Store(path) as store:
        run(sweep, sweep.space.points(), store, executor="serial")
        quiet = told(store.rows())
    damage(path, "header")
    data = bytearray(path.read_bytes())
    data[-6000:] = bytes(6000)
    path.write_bytes(data)
    with Store(path) as store:
        assert run(sweep, sweep.space.points(), store, executor="serial").screened < 40
        assert told(store.rows()) == quiet
    assert "results are whole and kept" in capsys.readouterr().err


def test_rows_that_are_only_in_the_log_are_found(small: Make, tmp_path: Path) -> None:
    path, sweep = tmp_path / "s", small(12)
    code = (
        "import os, sys\n"
        "from armillary.explore.runner import Store\n"
        "from armillary.explore.runner.identity import Identity\n"
        "from armillary.explore.sweep import Row\n"
        "store = Store(sys.argv[1])\n"
        "store.add([(Identity('k', 'r'), Row(0, {}, {}, 'ok', '', {'step_time': 1.0}))])\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=300)
    assert (tmp_path / "s-wal").stat().st_size > 0
    (row,) = salvage(path).work.values()
    assert row[:4] == ("k", "r", "ok", "")
    damage(path, "header")
    with Store(path) as store:
        assert list(store.done()) == [Identity("k", "r")]
        assert run(sweep, sweep.space.points(), store, executor="serial").screened == 12


def test_a_store_of_an_earlier_version_is_read_and_goes_on(filled: Path, tmp_path: Path, small: Make) -> None:
    path = copy(filled, tmp_path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("DROP VIEW results")
        base.execute("ALTER TABLE work DROP COLUMN seal")
        base.execute("ALTER TABLE points DROP COLUMN seal")
    with Stored(path) as stored:
        assert len(stored.rows()) == MANY
    with Store(path) as store:
        assert len(store.rows()) == len(store.done()) == MANY
        run(small(), small().space.points(), store, executor="serial")
        assert len(store.rows()) == 12


def test_noise_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(random.Random(1).randbytes(40_000))
    for kind in (Store, Stored):
        with pytest.raises(InputError, match="another kind of file"):
            kind(tmp_path / "s")


def limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_is_one_line_and_what_was_done_is_kept(tmp_path: Path) -> None:
    sizes = [f"{2 + at} MB" for at in range(300)]
    ring = {"name": "ring", "topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}
    study = {"workload": {"collective": "all-reduce", "size": "1 MB"}, "platform": {"network": [ring]}}
    document = {"study": study, "vary": {"workload.size": sizes}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(document))

    def sweep(**more: Any) -> subprocess.CompletedProcess[str]:
        words = ["-m", "armillary", "sweep", "sweep.yaml", "--executor", "serial", "--top", "0"]
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env=os.environ | {"XDG_CACHE_HOME": "/dev/null/nowhere", "ARMILLARY_CACHE_WARNED": "1"},
            **more,
        )

    done = sweep(preexec_fn=limited(200_000))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "sweep.sqlite: " in done.stderr and "the same command goes on from there" in done.stderr
    with Stored(tmp_path / "sweep.sqlite") as store:
        before = len(store.rows())
    assert 0 < before < 300 and f"{before} of 300 points are done and kept" in done.stderr
    done = sweep()
    assert done.returncode == 0 and f"{300 - before} of 300 points done now" in done.stdout, done.stderr


def test_no_room_for_a_store_is_one_line(tmp_path: Path) -> None:
    code = f"from armillary.explore.runner import Store; Store({str(tmp_path / 's')!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, preexec_fn=limited(1000)
    )
    assert CutShortError.__name__ in done.stderr.splitlines()[-1] and "s: " in done.stderr.splitlines()[-1]
    Store(tmp_path / "s").close()


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
COMPUTED = {
    "view": (
        "ALTER TABLE work RENAME TO other",
        f"CREATE VIEW work AS {ENDLESS} x AS id, '' AS key, '' AS rules, '' AS status, '' AS reason, '' AS measures, "
        "1.0 AS seconds, '' AS limits, '' AS version, '' AS finished, NULL AS seal FROM n",
    ),
    "trigger": (
        f"CREATE TRIGGER never AFTER INSERT ON work BEGIN INSERT INTO meta SELECT x, '' FROM ({ENDLESS} x FROM n); END",
    ),
    "table": ("ALTER TABLE points ADD COLUMN much TEXT AS (hex(zeroblob(400000000)))",),
    "index": ("CREATE INDEX mine ON work(hex(zeroblob(1000000)))",),
}


@pytest.mark.parametrize("kind", COMPUTED)
def test_a_store_in_which_sqlite_would_compute_is_refused(tmp_path: Path, kind: str) -> None:
    """Whoever wrote it may have made it endless."""
    place = tmp_path / "store"
    Store(place).close()
    with closing(sqlite3.connect(place)) as base:
        base.execute("CREATE INDEX own ON work(status)")
        base.execute("CREATE VIEW own_view AS SELECT * FROM work")
        base.commit()
    # What a user may have added to look at it.
    Store(place).close()
    Stored(place).close()
    with closing(sqlite3.connect(place)) as base:
        for each in COMPUTED[kind]:
            base.execute(each)
        base.commit()
    for opened in (Store, Stored):
        with pytest.raises(InputError, match=f"SQLite would compute its {kind} '"):
            opened(place)
