"""`armillary generate learn`, from a plan file to a measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.trace import load_trace

PLAN = """
count: 32
nodes: 3000
choices: {layers: [2, 4, 6], hidden: [2048, 4096], ffn: [8192, 11008], tp: [1, 2], dp: [1, 2], microbatches: [2, 3]}
"""
HELD_OUT = """
count: 10
seed: 9
nodes: 4000
choices: {layers: [3, 8], hidden: [3072], ffn: [9216], tp: [1, 2], dp: [1, 2], microbatches: [2, 4]}
"""
MACHINE = """
network: [{name: node, topology: Switch, size: 4, bandwidth: 450 GB/s, latency: 1 us}]
npu: {peak: 989 TFLOP/s, memory: {bandwidth: 3.35 TB/s}}
"""


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, ["generate", "learn", *map(str, words)])
    if result.exit_code == 2:
        raise InputError(result.output)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("learn")
    (made / "plan.yaml").write_text(PLAN)
    (made / "held-out.yaml").write_text(HELD_OUT)
    (made / "machine.yaml").write_text(MACHINE)
    result = run(
        "corpus", made / "corpus", "--generate", made / "plan.yaml", "--show", "--json", made / "corpus.json"
    )
    assert "all-gather tp" in result.output
    count = json.loads((made / "corpus.json").read_text())["traces"]
    assert 24 < count <= 32  # those of two parts may be the same
    assert f"{count} traces" in result.output
    assert f"{count} traces" in run("train", made / "corpus", "-o", made / "model.npz").output
    return made


def test_show(folder: Path) -> None:
    assert "1f1b ddp, only stage" in run("show", folder / "model.npz").output
    assert "hidden ffn tp^-1" in run("show", folder / "model.npz", "--role", "mlp.residual.add").output
    with pytest.raises(InputError, match="no such piece"):
        run("show", folder / "model.npz", "--role", "mlp")


def test_sample(folder: Path, tmp_path: Path) -> None:
    wish = (
        "--set",
        "layers=8",
        "--set",
        "hidden=3072",
        "--set",
        "tp=2",
        "--set",
        "dp=2",
        "--set",
        "microbatches=3",
    )
    result = run(
        "sample", folder / "model.npz", *wish, "--set", "ffn=8192", "--out", tmp_path / "made", "--machine",
        folder / "machine.yaml",
    )  # fmt: skip
    assert "trace 0: 4 ranks, 1 distinct" in result.output
    assert "step" in result.output
    assert "beyond the corpus: layers" in result.output
    assert load_trace(tmp_path / "made" / "rank").n_ranks == 4
    run("sample", folder / "model.npz", *wish, "--count", 2, "--out", tmp_path / "two")
    assert load_trace(tmp_path / "two" / "1" / "rank").n_ranks == 4
    with pytest.raises(InputError, match="is there already"):
        run("sample", folder / "model.npz", *wish, "--out", tmp_path / "made")


def test_evaluate(folder: Path, tmp_path: Path) -> None:
    result = run(
        "evaluate", folder / "model.npz", folder / "corpus", "--held-out", folder / "held-out.yaml", "--json",
        tmp_path / "found.json", "--plot", tmp_path / "found.png", "--html", tmp_path / "found.html",
    )  # fmt: skip
    assert "step time, beyond the corpus" in result.output
    errors = json.loads((tmp_path / "found.json").read_text())["errors"]
    assert errors["nodes, beyond the corpus, made"]["mean"] <= 0.03
    assert errors["time, beyond the corpus, made"]["mean"] <= 0.05
    assert errors["time, beyond the corpus, nearest"]["mean"] > 0.05
    assert (tmp_path / "found.png").stat().st_size > 1000


def test_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to do"):
        run("corpus", tmp_path / "corpus")
