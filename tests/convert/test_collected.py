from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert.collected import CollectedRank, ProcessGroup, read_collected, write_collected
from armillary.convert.torch_import import import_torch


def rank_of(rank: int, world_size: int = 2) -> CollectedRank:
    groups = (
        ProcessGroup("0", "default_pg", "cpu:gloo", (0, 1)),
        ProcessGroup("3", "mesh_tp", "cpu:gloo", (rank,)),
    )
    host, device = f"host_{rank}.json", f"device_{rank}.json"
    return CollectedRank(rank, world_size, host, device, "gloo", "", "2.13.0", 2, 1, groups)


def test_ranks_read_back_as_written_in_order(tmp_path: Path) -> None:
    written = [rank_of(rank, 11) for rank in range(11)]
    for rank in reversed(written):
        write_collected(tmp_path, rank)
    assert read_collected(tmp_path) == written


def test_a_folder_without_a_collection_has_no_ranks(tmp_path: Path) -> None:
    (tmp_path / "host_0.json").touch()
    assert read_collected(tmp_path) == []


@pytest.mark.parametrize("ranks", [[(0, 2)], [(0, 2), (2, 2)], [(0, 1), (1, 2)]])
def test_a_missing_rank_or_a_mixture_of_runs_is_refused(tmp_path: Path, ranks: list[tuple[int, int]]) -> None:
    for rank, world_size in ranks:
        write_collected(tmp_path, rank_of(rank, world_size))
    with pytest.raises(InputError, match="expected one of each rank of one run"):
        read_collected(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"format": "other"}, {"surprise": 1}, {"groups": [{"name": "0"}]}, {"groups": 3}, {"format": None}],
)
def test_another_layout_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_collected(tmp_path, rank_of(0, 1))
    file = tmp_path / "collected_0.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=r"collected_0\.json.*expected what armillary\.collect writes"):
        read_collected(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format"', "\udcff"])
def test_damaged_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "collected_0.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"collected_0\.json"):
        read_collected(tmp_path)


def test_without_pytorch_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"armillary trace collect needs PyTorch.*pip install torch"):
        import_torch("armillary trace collect")


def test_an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        __version__ = "2.1.0+cu118"

    monkeypatch.setattr(importlib, "import_module", lambda name: Old)
    with pytest.raises(InputError, match=r"PyTorch is 2\.1\.0\+cu118, expected 2\.4 or newer"):
        import_torch("armillary trace collect")


@pytest.mark.parametrize("options", [{"warmup": -1}, {"steps": 0}, {"steps": 1.5}])
def test_impossible_windows_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"collect: .* expected a number"):
        armillary.collect("traces", **options)
