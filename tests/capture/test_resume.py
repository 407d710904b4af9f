"""Captures that were interrupted, and go on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.capture.scripts import capture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def test_an_interrupted_capture_goes_on(tmp_path: Path) -> None:
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0,))
    said = json.loads((tmp_path / "cap" / "capture.json").read_text())
    assert said.pop("done") == [0]
    (tmp_path / "cap" / "capture.json").write_text(json.dumps(said))
    before = (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0, 1))
    assert (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns == before
    # One that ended is run again: what the script imports may have changed.
    capture(tmp_path, "for _ in range(3): step()", ranks=2, run=(0,))
    assert (tmp_path / "cap" / "rank_0.json.gz").stat().st_mtime_ns > before
    assert not (tmp_path / "cap" / "rank_1.json.gz").exists()


def test_what_a_script_uses_decides_whether_its_capture_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import json, os, part\njson.load(open(os.path.join(os.path.dirname(__file__), 'keys.json')))\n"
    text += "os.environ.get('MINE')\nfor _ in range(3): step()"
    (tmp_path / "part.py").write_text("")
    (tmp_path / "keys.json").write_text("{}")

    def again() -> bool:
        file = tmp_path / "cap" / "capture.json"
        if file.exists():
            said = json.loads(file.read_text())
            said.pop("done")
            file.write_text(json.dumps(said))
        rank = tmp_path / "cap" / "rank_0.json.gz"
        before = rank.stat().st_mtime_ns if rank.exists() else 0
        capture(tmp_path, text)
        return rank.stat().st_mtime_ns > before

    assert again() and not again()
    (tmp_path / "part.py").write_text("other = 1")
    assert again() and not again()
    (tmp_path / "keys.json").write_text("[]")
    assert again() and not again()
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("SHLVL", "77")
    assert again() and not again()
