"""The share of GEMMs: what counts, and what the number depends on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.evidence.reproduce.gemm_share import Assumptions, measure, models, run
from armillary.workload.models.counts import parameters


def test_the_transformer_has_the_weights_of_the_papers_layers() -> None:
    """Of arXiv 1706.03762, table 3, big: 213 M with 37,000 words, 168 h² of them in layers."""
    count = parameters(models(Assumptions())["Transformer big"]).total
    assert count == pytest.approx(168 * 1024**2 + 32768 * 1024, rel=0.01)


def test_parts_add_up_to_the_step() -> None:
    for each in measure(Assumptions()):
        assert sum(each.parts.values()) == pytest.approx(each.step, rel=1e-6)
        assert each.gemm == each.parts["with weights"] + each.parts["of attention"]


def test_faster_gemms_have_a_smaller_share() -> None:
    base = Assumptions()
    for slow, fast in zip(measure(replace(base, efficiency=0.3)), measure(base), strict=True):
        assert slow.share > fast.share
    for each, weights in zip(measure(base), measure(replace(base, counted="weights")), strict=True):
        assert weights.share < each.share
        assert weights.step == each.step


def test_a_share_far_from_what_is_said_does_not_hold() -> None:
    said, implied = run(Assumptions()).claims
    assert [case.ours for case in said.cases] == [each.share for each in measure(Assumptions())]
    # 78.8 and 83.7 % against 70 %.
    assert (said.verdict, implied.verdict) == ("does not hold", "does not hold")
    assert said.number == "70 % ± 5 points"


def test_a_batch_of_no_sentence_is_an_error() -> None:
    with pytest.raises(InputError, match="--tokens 10: expected at least a sentence, --sequence 64"):
        measure(replace(Assumptions(), tokens=10))


def test_the_command_runs() -> None:
    result = CliRunner().invoke(main, ["validate", "reproduce", "gemm-share"], catch_exceptions=False)
    assert "does not hold" in " ".join(result.output.split())
