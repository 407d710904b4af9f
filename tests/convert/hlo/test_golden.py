"""Programs that XLA compiled: a training step, 4-way data and 2-way tensor parallel; all collectives of a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from armillary import Timeline
from armillary.cli import main
from armillary.convert import Converted, report

GOLDEN = Path(__file__).parent / "mlp_dp4_tp2.hlo"
ROWS, WIDTH, HIDDEN = 32 // 4, 64, 256 // 2  # of one rank
PRODUCTS = 5 * 2 * ROWS * WIDTH * HIDDEN
"""Two forward, three backward: nothing needs the gradient of the input."""


def test_flops_bytes_and_groups(convert: Callable[..., Converted], nodes: Callable[..., Any]) -> None:
    found = convert(GOLDEN.read_text())
    facts = report(found)
    activations, gradients = ROWS * WIDTH * 4, 2 * WIDTH * HIDDEN * 4
    assert facts["comm"] == {"ALL_REDUCE": {"count": 16, "bytes": 8 * (activations + gradients)}}
    assert list(found.groups.values()) == [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2, 4, 6), (1, 3, 5, 7)]
    assert (facts["ranks"], facts["partitions"], facts["replicas"], facts["warnings"]) == (8, 8, 1, [])
    element_wise = 2 * 2 * WIDTH * HIDDEN + 3 * ROWS * HIDDEN + 2 * ROWS * WIDTH
    assert facts["flops_per_rank"] == PRODUCTS + element_wise
    for rank in range(8):
        of_rank = nodes(found, rank)
        assert found.groups[int(of_rank["all-reduce"]["pg_name"])] == (rank - rank % 2, rank - rank % 2 + 1)
        assert of_rank["all-reduce.3"]["comm_size"] == gradients
        assert of_rank["broadcast_multiply_fusion"]["after"] == ["all-reduce"]


def test_asynchronous_collectives_of_a_gpu(
    convert: Callable[..., Converted], nodes: Callable[..., Any]
) -> None:
    found = convert((GOLDEN.parent / "collectives_gpu.hlo").read_text())
    each, pairs = 16 * 16 * 4, 2 * (4 + 3)  # bytes of a rank; a ring and a shift in both columns
    assert report(found)["comm"] == {
        "SEND": {"count": pairs, "bytes": pairs * each},
        "RECV": {"count": pairs, "bytes": pairs * each},
        "ALL_REDUCE": {"count": 16, "bytes": 16 * each},
        "ALL_GATHER": {"count": 8, "bytes": 8 * each},
        "ALL_TO_ALL": {"count": 8, "bytes": 8 * each},
        "REDUCE_SCATTER": {"count": 8, "bytes": 8 * each},
    }
    assert found.warnings == ()
    for rank in range(8):
        column, row = tuple(range(rank % 2, 8, 2)), (rank - rank % 2, rank - rank % 2 + 1)
        of_rank = nodes(found, rank)
        assert found.groups[int(of_rank["reduce-scatter-start"]["pg_name"])] == column
        assert found.groups[int(of_rank["all-gather-start"]["pg_name"])] == row


@pytest.mark.parametrize("profile", ["physical", "astra-sim"])
def test_it_simulates_to_the_end(
    convert: Callable[..., Converted], run: Callable[..., Timeline], profile: str
) -> None:
    found = run(convert(GOLDEN.read_text()), profile)
    assert found.total_ticks > 1000
    assert len(set(found.finish_ticks.tolist())) == 1


def test_the_command_writes_traces_groups_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [
        "trace",
        "convert",
        "--from",
        "hlo",
        str(GOLDEN),
        "-o",
        "step",
        "--json",
        "report.json",
        "--ranks",
        "16",
    ]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "groups of" in done.output) == (2, False)
    assert "replica_groups has no 8, expected each of 0 to 15" in done.output
    done = CliRunner().invoke(main, command[:-2], catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir())[:2] == ["report.json", "step.0.et"]
    assert json.loads((tmp_path / "report.json").read_text())["module"] == "jit_step"
    assert CliRunner().invoke(main, ["trace", "check", *map(str, tmp_path.glob("*.et"))]).exit_code == 0
