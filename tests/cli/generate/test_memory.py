"""`generate memory` of one pipeline rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main

PLAN = ["--ranks", "512", "--tp", "8", "--pp", "64", "--batch", "512"]


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["generate", "memory", "megatron-1t", *PLAN, *words])
    return result.exit_code, result.output


def test_an_inner_rank_holds_what_the_paper_prints(tmp_path: Path) -> None:
    """Parameters and optimizer of arXiv 2205.05198, figure 1: 32.96 GiB, which leaves the embedding out."""
    path = tmp_path / "inner.json"
    assert run("--pipeline-rank", "1", "--json", str(path))[0] == 0
    found = json.loads(path.read_text())
    held = sum(found["categories"][f"{name}_bytes"] for name in ("weights", "gradients", "optimizer"))
    assert found["pipeline_rank"] == 1
    assert held / 2**30 == pytest.approx(32.96, rel=0.001)


def test_it_fits_or_not_as_the_rank_does() -> None:
    inner = run("--pipeline-rank", "63", "--capacity", "60 GiB")[1]
    first = run("--capacity", "60 GiB")[1]
    assert "It fits" in inner
    assert "It does not fit" in first


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--pipeline-rank", "64"], "expected one below pp 64 (nearest: 63)"),
        (["--pipeline-rank", "1", "--prompt", "5"], "expected a plan of training"),
    ],
)
def test_ranks_that_are_not_there(words: list[str], problem: str) -> None:
    status, output = run(*words)
    assert status == 2
    assert problem in output
