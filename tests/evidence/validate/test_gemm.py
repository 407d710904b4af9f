"""Validations of products and attention: held-out rows meet their bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.gemm import SUITES, device_of
from armillary.evidence.validate.table import Table

SUITE = {suite.name: suite for suite in SUITES}
HEADER = "device,gemm_dtype,m,n,k,latency\n"


def mean(table: Table) -> float:
    return float(np.mean([abs(row.error) for row in table.rows]))


def run(name: str, *files: Path) -> Table:
    return SUITE[name].run(files, lambda done, of: None)


@pytest.mark.parametrize(
    ("name", "long", "short"),
    [("gemm-a100", 0.043, 0.063), ("gemm-h100", 0.043, 0.045), ("gemm-b200", 0.056, 0.061)],
)
def test_unseen_gemms_meet_the_bar(shared: Path, name: str, long: float, short: float) -> None:
    table = run(name, shared / "measured" / SUITE[name].needs)
    assert table.relation == "held out" and table.bar
    assert len(table.rows) > 1000
    assert mean(table) < table.bar.mean
    parts = {part.title: mean(part) for part in table.parts}
    assert len(parts) in (2, 4)
    for title, error in parts.items():
        assert error < (short if "below 20 us" in title else long), title
    # Each row states an interval of 90 %, which holds about as many of long and of short ones.
    for part in table.parts:
        assert 0.85 < np.mean([row.low <= row.measured <= row.high for row in part.rows]) < 0.95, part.title


def test_unseen_prefills(shared: Path) -> None:
    table = run("attention-h100", shared / "measured" / SUITE["attention-h100"].needs)
    assert mean(table) < 0.1
    assert {part.title for part in table.parts} == {"bf16", "fp8", "fp8, window 128"}
    assert all(mean(part) < 0.075 for part in table.parts if "window" not in part.title)


def test_a_file_of_ones_own_is_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = ["NVIDIA H100 80GB HBM3,bfloat16,4096,4096,4096,0.19", "NVIDIA B200,fp8,8192,8192,8192,0.4",
            "NVIDIA H100 80GB HBM3,bfloat16,1,64,64,0.002", "Abacus,bfloat16,4096,4096,4096,9"]  # fmt: skip
    path.write_text("# made up\n" + HEADER + "\n".join(rows) + "\n")
    table = run("gemm", path)
    assert [row.group for row in table.rows] == [
        "h100-sxm bf16",
        "h100-sxm bf16, below 20 us",
        "b200 fp8",
        "Abacus bf16",
    ]
    assert [bool(row.reason) for row in table.rows] == [False, False, False, True]
    assert mean(Table("", "", "", "", table.rows[:3], "")) < 0.3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,k\n", "no column 'device'; it has m, n, k"),
        (HEADER, "no GEMMs"),
        (
            HEADER + "x,bf16,1,2,three,1\n",
            "bad.csv:2: k: got 'three', expected a whole number from 1 to 2147483647",
        ),
        (
            HEADER + "x,bf16,1,2,3,-1\n",
            "bad.csv:2: latency: got '-1', expected ms above 0",
        ),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        run("gemm", path)


@pytest.mark.parametrize(
    ("name", "device"),
    [("NVIDIA A100-SXM4-80GB", "a100-sxm-80"), ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"), ("NVIDIA GB200", "gb200"),
     ("NVIDIA H200", "h200-sxm"), ("b300", "b300"), ("NVIDIA H100 PCIe", "h100-pcie"),
     ("NVIDIA H100 NVL", "h100-nvl"), ("Tesla V100-PCIE-32GB", "v100-pcie"), ("NVIDIA A100 80GB PCIe", "a100-pcie"),
     ("NVIDIA A100-PCIE-40GB", "a100-pcie-40"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("a100_sxm", "a100-sxm-80"),
     ("NVIDIA GB200 NVL72", "gb200"), ("NVIDIA B200 180GB", "b200")],
)  # fmt: skip
def test_names_of_devices(name: str, device: str) -> None:
    found = device_of(name)
    assert found and found.name == device


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GH200 480GB", "Tesla V100S-PCIE-32GB", "NVIDIA H200 NVL", "NVIDIA A100-SXM-64GB", "NVIDIA H1000",
     "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA H100 96GB HBM2e"],
)  # fmt: skip
def test_other_packages_of_a_chip_are_not_known(name: str) -> None:
    assert device_of(name) is None
