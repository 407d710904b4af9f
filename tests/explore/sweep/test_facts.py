"""Facts of a study: files that it names are read once, and anew when they have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import armillary
from armillary.compute import gpu
from armillary.explore.sweep.facts import known_model

TINY = {
    "kind": "decoder", "name": "tiny", "hidden": 256, "layers": 2, "vocabulary": 1024, "context": 512, "tied": False,
    "norm": "rms", "activation": "swiglu", "attention": {"heads": 8}, "mlp": {"size": 512},
}  # fmt: skip
DEVICE = (Path(gpu.__file__).parent / "devices" / "h100-sxm.yaml").read_text()


def write(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(TINY | changes))


def test_a_model_is_read_once_and_anew_when_its_file_changes(tmp_path: Path) -> None:
    write(tmp_path / "tiny.yaml")
    first = known_model("tiny.yaml", tmp_path)
    assert known_model("tiny.yaml", tmp_path) is first
    write(tmp_path / "tiny.yaml", layers=10)
    assert known_model("tiny.yaml", tmp_path).layers == 10  # type: ignore[union-attr]


def test_one_name_in_two_folders_is_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for layers in (2, 4):
        here = tmp_path / str(layers)
        here.mkdir()
        write(here / "tiny.yaml", layers=layers)
        monkeypatch.chdir(here)
        found.append(known_model("tiny.yaml", Path()).layers)  # type: ignore[union-attr]
    assert found == [2, 4]


def test_a_device_is_read_anew_by_the_next_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "tiny.yaml")
    study = {
        "platform": {"preset": "dgx-h100", "compute": {"model": "gpu", "device": "mine.yaml"}},
        "workload": {"generate": {"model": "tiny.yaml", "batch": 16}},
    }
    document = {"study": study, "vary": {"workload.generate.microbatch": [1, 2]}}
    times = []
    for memory in ("3 TB/s", "0.3 TB/s"):
        (tmp_path / "mine.yaml").write_text(DEVICE.replace("3.35 TB/s", memory))
        times.append([row.measures["step_time"] for row in armillary.sweep(document).rows])
    assert all(slow > fast for fast, slow in zip(*times, strict=True))
