"""The picture and the tables of a footprint."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.cli.outputs import show_table
from armillary.report.memory_picture import memory_picture, reduced
from armillary.report.memory_tables import advice_line, advice_table, memory_table
from armillary.workload.layers.layer import Layer
from armillary.workload.memory.advice import advise
from armillary.workload.memory.footprint import footprint
from armillary.workload.memory.inference import serving
from armillary.workload.memory.outside import Outside
from armillary.workload.plan.schema import Parallel, Pipeline, Plan

GIB = 2**30


def layers_of(plan: Plan) -> list[Layer]:
    """Return two layers of a GiB of activations each, a tenth if recomputed."""
    saved = GIB // 10 if plan.recompute == "full" else GIB
    return [Layer("layer", (), parameters={"dp+cp": GIB // 16}, saved=saved, working=GIB // 4)] * 2


PLAN = Plan(ranks=2, batch=16, parallel=Parallel(dp=2), pipeline=Pipeline(schedule="gpipe"))
LAYERS = layers_of(PLAN)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures(tmp_path, suffix):
    path = tmp_path / f"memory.{suffix}"
    memory_picture(footprint([LAYERS], PLAN, 0), path, 80 * GIB, "A title")
    memory_picture(serving([LAYERS], PLAN, 0), tmp_path / f"serving.{suffix}")
    assert path.stat().st_size > 10_000
    if suffix == "svg":
        text = path.read_text()
        assert "Peak 18.56 GiB on pipeline rank 0, forward of layer, microbatch 7" in text
        assert "capacity 80 GiB" in text and "optimizer states" in text and "logits" not in text
    with pytest.raises(InputError, match=r"\.txt"):
        memory_picture(footprint([LAYERS], PLAN, 0), tmp_path / "a.txt")


def test_long_timelines_keep_their_peak():
    found = footprint([LAYERS], PLAN.model_copy(update={"batch": 2048}), 0)
    kept = reduced(found)
    assert len(found.total) > len(kept) == 1500 and found.at in kept


def test_tables(capsys):
    advice = advise(PLAN, 10 * GIB, layers_of, outside=Outside(GIB, 0))
    show_table(memory_table(advice.footprint, advice.capacity))
    show_table(advice_table(advice))
    text = capsys.readouterr().out
    rows = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines() if "%" in line}
    assert rows["activations"] == ["160.0", "%"] and rows["CUDA context (assumed)"] == ["10.0", "%"]
    assert rows["recompute full"] == ["53.3", "%"]
    assert "missing" in text and "offload the optimizer states" not in text
    assert advice_line(advice).startswith("It does not fit: 20.31 GiB of 10 GiB. Any one")
    assert advice_line(advise(PLAN, 21 * GIB, layers_of)) == "It fits: 20.03 GiB of 21 GiB."
    tight = advise(PLAN, GIB, layers_of)
    assert "No single change" in advice_line(tight)
    assert advice_table(tight).row_count == 3
