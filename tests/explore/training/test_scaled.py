"""Machines with faster networks and devices: what was measured follows, and it is said."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.compute.machine import machine_of
from armillary.explore.training.scaled import MOST, scaled
from armillary.explore.training.train import train

MACHINES = ("4xdgx-h100", "4xdgx-a100", "4xamd-mi300x", "2xgb200-nvl72", "4xdgx-b200")
PLAN = {"batch": 288, "sequence": 1024, "tp": 4, "pp": 2}


def step(name: str, folder: Path, **factors: float) -> float:
    folder.mkdir(exist_ok=True)
    return train("llama-2-7b", scaled(name, folder, **factors).machine, **PLAN).step_time_s


@pytest.mark.parametrize("name", MACHINES)
def test_a_factor_near_one_changes_next_to_nothing(name: str, tmp_path: Path) -> None:
    plain = step(name, tmp_path)
    assert plain == train("llama-2-7b", name, **PLAN).step_time_s
    for factors in ({"fabric": 1.0001}, {"peak": 1.0001}, {"fabric": 0.9999, "peak": 0.9999}):
        # Files have four digits.
        assert step(name, tmp_path, **factors) == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("key", ["fabric", "peak"])
@pytest.mark.parametrize("name", MACHINES[:3])
def test_faster_is_never_slower(name: str, key: str, tmp_path: Path) -> None:
    times = [step(name, tmp_path, **{key: factor}) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    # Where the CPU is the bound, kernels that end sooner leave other collectives exposed: by 0.3 % of a step on A100.
    assert all(faster <= 1.005 * slower for slower, faster in pairwise(times)) and times[0] > times[-1]


def test_what_was_changed_is_said_and_widens_the_interval(tmp_path: Path) -> None:
    found = scaled("4xdgx-h100", tmp_path, fabric=2, peak=1.5)
    assert set(found.files) == {path.name for path in tmp_path.iterdir()}
    assert (found.machine.name, found.machine.npus) == ("4xdgx-h100", 32)
    base, fabric = machine_of("4xdgx-h100").platform, found.machine.platform
    assert [each.bandwidth for each in fabric.dimensions] == [
        base.dimensions[0].bandwidth,
        2 * base.dimensions[1].bandwidth,
    ]
    assert fabric.npu.memory == base.npu.memory
    one, other = train("llama-2-7b", "4xdgx-h100", **PLAN), train("llama-2-7b", found.machine, **PLAN)
    assert other.interval_s[1] / other.step_time_s > one.interval_s[1] / one.step_time_s
    assert other.software == one.software or other.software.name == one.software.name
    said = " ".join(other.assumptions)
    assert "2 times the bandwidth" in said and "1.5 times" in said
    assert not any(text in said for text in map(str, (tmp_path, "/tmp")))


def test_memory_is_the_users_or_what_the_device_says() -> None:
    keys = {
        "network": [{"topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}],
        "npu": {"peak": "989 TFLOP/s", "memory": {"bandwidth": "3.35 TB/s"}},
        "compute": {"model": "gpu", "device": "h100-sxm"},
    }
    found = machine_of(keys).platform.npu.memory
    assert found == machine_of("dgx-h100").platform.npu.memory and found.capacity == int(79.11 * 2**30)
    keys["npu"] = {"peak": "989 TFLOP/s", "memory": {"bandwidth": "3.35 TB/s", "capacity": "80 GB"}}
    assert machine_of(keys).platform.npu.memory.capacity == 80 * 10**9


@pytest.mark.parametrize("factor", [0.0, -1.0, MOST * 2, 1 / MOST / 2, float("nan"), float("inf")])
def test_a_factor_out_of_range_is_refused(factor: float, tmp_path: Path) -> None:
    for key in ("fabric", "peak"):
        with pytest.raises(InputError, match=f"{key}: got .* expected a factor"):
            scaled("4xdgx-h100", tmp_path, **{key: factor})


def test_one_node_has_no_network_between_nodes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dgx-h100 has no network between nodes"):
        scaled("dgx-h100", tmp_path, fabric=2)
    assert scaled("dgx-h100", tmp_path, peak=2).files
