"""Points by lot and by Optuna: the same seed, the same points; and what a storage is good for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import armillary
from armillary.base.errors import InputError
from armillary.explore.runner import CutShortError

from .test_planner import GENERATE, MODEL, sweep

VARY: dict[str, Any] = {
    f"{GENERATE}.parallel.tp": [1, 2, 4, 8],
    f"{GENERATE}.parallel.pp": [1, 2, 4],
    f"{GENERATE}.pipeline.schedule": {"values": ["1f1b", "gpipe"], "when": "pp > 1"},
    f"{GENERATE}.microbatch": [1, 2],
}


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(MODEL))
    monkeypatch.chdir(tmp_path)


def numbers(found: Any) -> list[int]:
    return [row.number for row in found.rows]


@pytest.mark.parametrize("method", ["tpe", "nsga2", "random"])
def test_a_seed_gives_the_same_points(method: Any) -> None:
    if method != "random":
        pytest.importorskip("optuna")
    given = sweep(VARY, ["minimize step_time", "minimize memory"])
    one, again, other = (armillary.search(given, method=method, trials=8, seed=seed) for seed in (1, 1, 2))
    assert numbers(one) == numbers(again)
    assert numbers(one) != numbers(other)
    assert [row.measures for row in one.best] == [row.measures for row in again.best]
    assert not one.exact
    assert one.gap is not None


@pytest.mark.parametrize("method", ["tpe", "nsga2", "random"])
def test_all_points_are_exact(method: Any) -> None:
    if method != "random":
        pytest.importorskip("optuna")
    given = sweep({f"{GENERATE}.parallel.tp": [1, 2, 4]}, [])
    best = armillary.search(given).best[0]
    found = armillary.search(given, method=method, trials=30)
    assert found.exact
    assert found.best[0].number == best.number
    assert found.simulated <= 3


@pytest.mark.parametrize("name", ["trials.db", "trials.log"])
def test_a_storage_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    given = sweep(VARY, []) | {"search": {"method": "tpe", "storage": name}}
    first = armillary.search(given, trials=5)
    second = armillary.search(given, trials=5)
    assert numbers(first) == numbers(second)
    assert second.simulated == 0
    assert [dict(row.measures) for row in first.rows] == [dict(row.measures) for row in second.rows]
    more = armillary.search(given, trials=9)
    assert set(numbers(first)) <= set(numbers(more))
    with pytest.raises(InputError, match="another sweep"):
        armillary.search(given | {"where": ["tp <= 4"]}, trials=5)
    with pytest.raises(InputError, match="storage"):
        armillary.search(given | {"search": {"method": "tpe", "storage": "/dev/null/trials.db"}})


def cut(data: bytes) -> bytes:
    return data[: len(data) - 40]


def overwritten(data: bytes) -> bytes:
    middle, size = len(data) * 2 // 3, len(data) // 12
    return data[:middle] + b"\xff" * size + data[middle + size :]


def headless(data: bytes) -> bytes:
    return b"\0" * 200 + data[200:]


@pytest.mark.parametrize("harm", [cut, overwritten, headless])
@pytest.mark.parametrize("name", ["trials.log", "trials.db"])
def test_of_a_damaged_storage_whole_trials_are_kept(
    name: str, harm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    path = tmp_path / name
    given = sweep(VARY, []) | {"search": {"method": "tpe", "storage": str(path), "trials": 8}}
    before = {row.number: dict(row.measures) for row in armillary.search(given).rows}
    data = harm(path.read_bytes())
    path.write_bytes(data)
    found = armillary.search(given)
    said = capsys.readouterr().err
    assert f"storage {path}: was damaged (" in said and "the damaged file is now" in said
    assert (tmp_path / f"{name}.damaged").read_bytes() == data
    kept = int(said.partition("): ")[2].split()[0])
    assert 0 < kept <= len(before)
    # What is kept is as it was, and not done again.
    assert found.simulated <= 8 - kept
    assert all(dict(row.measures) == before[row.number] for row in found.rows if row.number in before)
    armillary.search(given)
    assert capsys.readouterr().err == ""


def test_a_row_whose_checksum_does_not_fit_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    path = tmp_path / "trials.log"
    given = sweep(VARY, []) | {"search": {"method": "tpe", "storage": str(path), "trials": 3}}
    # Of points that were rejected nothing is changed here.
    rejected = sum(row.status != "ok" for row in armillary.search(given).rows)
    changed = path.read_bytes().replace(b'"step_time":', b'"step_time":9')
    path.write_bytes(changed)
    armillary.search(given)
    assert "rows are damaged; their points" in capsys.readouterr().err
    path.write_bytes(changed + b"x")
    armillary.search(given)
    assert f"): {rejected} trials are whole" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["trials.log", "trials.db"])
def test_a_storage_that_fails_is_one_line_and_keeps_its_trials(name: str, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    given = sweep(VARY, []) | {"search": {"method": "tpe", "storage": str(tmp_path / name), "trials": 6}}
    tell, calls = optuna.Study.tell, []

    def full(study: Any, *rest: Any) -> Any:
        calls.append(rest)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        return tell(study, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Study, "tell", full)
        with pytest.raises(CutShortError, match=r"No space left on device\); 2 trials are done and kept"):
            armillary.search(given)
    assert armillary.search(given).points >= 1
