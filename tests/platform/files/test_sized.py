"""Machines of a size: nodes, racks and devices are counted."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.platform import load_platform, load_study
from armillary.platform.files.preset import device_names, is_preset, read_preset
from armillary.platform.files.sized import counted, devices_of


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dgx-h100", [8]),
        ("64xdgx-h100", [8, 64]),
        ("512xh100", [8, 64]),
        ("4xh100", [4]),
        ("4xgb200-nvl72", [72, 4]),
        ("256xgb200", [64, 4]),
        ("64xgb300", [64]),
        ("256xtpu-v6e", [16, 16]),
        ("512xtpu-v6e", [16, 16, 2]),
        ("128xtpu-v5p", [4, 4, 8]),
        ("7xtpu-v5p", [7]),
        ("1xb200", [1]),
    ],
)
def test_counts_are_nodes_racks_or_devices(name: str, shape: list[int]) -> None:
    assert [dimension.size for dimension in load_platform(name).dimensions] == shape


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("12xh100", "12 devices, expected at most 8, or a multiple of 8; nearest: 8 and 16"),
        ("0xh100", "0 devices, expected 1 to"),
        ("99999999xdgx-h100", "expected 1 to"),
        ("8xh101", "did you mean 'h100'"),
        ("4xdgx-superpod-h100", "cannot be counted"),
        ("74xgb200", "a multiple of a number from 40 to 72 in steps of 4, .*; nearest: 72 and 80"),
    ],
)
def test_what_cannot_be_counted_is_refused(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_platform(name)


def test_a_study_names_a_size_and_changes_it(tmp_path) -> None:
    path = tmp_path / "study.yaml"
    work = "workload: {collective: all-reduce, size: 1 MiB}\n"
    text = f"{work}platform: {{preset: %s, network: {{fabric: {{latency: 1 us}}}}}}\n"
    path.write_text(text % "2xdgx-b200")
    assert [each.latency for each in load_study(path).platform.dimensions] == [1000, 1000]
    path.write_text(text % "2xdgx-b2000")
    with pytest.raises(InputError, match=r"study.yaml:2: platform.preset: .*did you mean 'dgx-b200'"):
        load_study(path)


@given(st.integers(1, 5000), st.sampled_from(sorted(device_names())))
def test_all_devices_are_there_or_the_nearest_numbers_are(count: int, device: str) -> None:
    try:
        found = read_preset(f"{count}x{device}").document.data["platform"]["network"]
    except InputError as error:
        near = [int(part) for part in str(error).rpartition("nearest: ")[2].replace(",", "").split(" and ")]
        assert near[0] < count < near[1]
        for each in near:
            read_preset(f"{each}x{device}")
        return
    assert prod(map(devices_of, found)) == count


def test_names_that_are_no_counts() -> None:
    assert counted("dgx-h100") is None and counted("64 x h100") == (64, "h100")
    assert is_preset("64xanything") and not is_preset("anything")


NODE = """
platform:
  network: [{name: nvlink, topology: Switch, size: 8, bandwidth: 450 GB/s, latency: 1 us}]
  npu: {peak: 1 PFLOP/s, memory: {bandwidth: 3 TB/s}}
"""


def test_a_file_of_ones_own_is_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    between = "between: {name: fabric, topology: Switch, bandwidth: 50 GB/s, latency: 5 us}\n"
    (tmp_path / "node.yaml").write_text(NODE + between)
    (tmp_path / "lone.yaml").write_text(NODE)
    pod = NODE.replace("}]", "}, {name: rail, topology: Switch, size: 4, bandwidth: 25 GB/s, latency: 5 us}]")
    (tmp_path / "pod.yaml").write_text(pod)
    assert [each.size for each in load_platform("node.yaml").dimensions] == [8]
    found = load_platform("64xnode.yaml").dimensions
    assert [(each.name, each.size) for each in found] == [("nvlink", 8), ("fabric", 64)]
    # Without it the outermost dimension grows.
    assert [each.size for each in load_platform("3xpod.yaml").dimensions] == [8, 12]
    assert [each.size for each in load_platform("1xlone.yaml").dimensions] == [8]
    for name, words in (
        ("2xlone.yaml", "nothing joins 2 of them, expected in the file 'between"),
        ("0xnode.yaml", "0 devices, expected 1 to"),
        ("2xno.yaml", "no.yaml: no such file"),
    ):
        with pytest.raises(InputError, match=words):
            load_platform(name)
    # A file of that name wins.
    (tmp_path / "2xlone.yaml").write_text(NODE)
    assert [each.size for each in load_platform("2xlone.yaml").dimensions] == [8]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("h100x8", "8xh100"), ("8*H100", "8xh100"), ("h100:8", "8xh100"), ("dgx-h100 x 4", "4xdgx-h100")],
)
def test_a_count_that_stands_elsewhere_is_understood(written: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean '{meant}'\?"):
        load_platform(written)
