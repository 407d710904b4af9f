"""Studies that are run from Python: what they say of themselves, and how they show themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.explore.result import Result
from armillary.explore.training.choose import Choice
from armillary.explore.training.prediction import Prediction
from armillary.explore.training.scaled import scaled

STUDY = """\
workload: {collective: all-reduce, size: 64 MiB}
platform:
  network:
    - {name: inner, topology: Switch, size: 4, bandwidth: 400 GB/s, latency: 1 us}
    - {name: outer, topology: Switch, size: 2, bandwidth: 50 GB/s, latency: 5 us}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def result(study: Path) -> Result:
    return armillary.run(study)


def test_a_run_is_the_simulation_of_its_study(result: Result) -> None:
    assert result.step_time == result.timeline().total_ticks * 1e-9
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time)
    assert result.bound.ticks <= result.timeline().total_ticks
    assert result.interval is None and result.memory is None and result.mfu is None
    (row,) = result.collectives
    assert row["collective"] == "all-reduce" and row["size"] == 64 * 2**20 and row["members"] == 8
    assert row["bus_bandwidth"] == pytest.approx(2 * 7 / 8 * row["algorithm_bandwidth"])


def test_rows_are_what_tables_of_other_packages_take(result: Result) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(result.collectives)
    assert table["total"].sum() == pytest.approx(result.step_time)


def test_results_have_the_same_attributes() -> None:
    names = {
        "step_time", "interval", "breakdown", "mfu", "memory", "bound", "collectives", "plot", "timeline", "tried",
        "to_html", "_repr_html_",
    }  # fmt: skip
    for kind in (Result, Prediction, Choice):
        assert names <= {*dir(kind)} | {*getattr(kind, "__dataclass_fields__", {})}, kind


def test_three_lines_say_what_it_is(result: Result) -> None:
    lines = repr(result).split("\n")
    assert len(lines) == 3
    assert lines[0].startswith("Step time ") and "Lower bound" in lines[1] and "communication" in lines[2]


def test_changes_are_simulated(result: Result, study: Path) -> None:
    found = {each.text: each.seconds for each in result.tried()}
    wider = study.with_name("wider.yaml")
    wider.write_text(STUDY.replace("50 GB/s", "100 GB/s"))
    assert found["dimension outer twice the bandwidth"] == armillary.run(wider).step_time
    assert found["kernels twice as fast"] == result.step_time
    # The one that saves most comes first.
    assert list(found.values()) == sorted(found.values())


def test_the_page_holds_all_of_it(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert result.to_html(path) is None
    text = path.read_text()
    assert result.to_html() == text
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)[1])
    kinds = [block["kind"] for block in data["blocks"]]
    assert kinds[0] == "headline"
    assert {"bars", "sentences", "changes", "timeline", "table", "machine"} <= set(kinds)
    (changes,) = (block for block in data["blocks"] if block["kind"] == "changes")
    assert changes["before"] == result.step_time
    # Nothing is fetched, and no text becomes a function.
    policy = re.search(r'content="(default-src[^"]*)"', text)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)


def test_a_notebook_gets_the_page_in_a_frame(result: Result) -> None:
    frame = result._repr_html_()
    assert frame.startswith("<iframe sandbox=") and "allow-same-origin" not in frame
    assert "<script" not in frame


def test_a_page_has_the_suffix_of_one(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected .\.html"):
        result.to_html(tmp_path / "page.pdf")
    assert list(tmp_path.glob("page*")) == []


def test_several_jobs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    job = "{name: a, npus: 0-3, workload: {collective: all-reduce, size: 1 MiB}}"
    path.write_text(re.sub("workload: .*", f"jobs: [{job}]", STUDY))
    with pytest.raises(InputError, match="simulate_jobs"):
        armillary.run(path)


def test_runs_of_all_kinds_are_compared(result: Result, study: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.npz"
    result.timeline().save(saved)
    found = armillary.compare(result, study, result.timeline(), saved)
    assert set(found.terms.total.ns) == {result.timeline().total_ticks}
    for wrong in (7, None, [study]):
        with pytest.raises(InputError, match="expected a study file"):
            armillary.compare(result, wrong)
    with pytest.raises(InputError, match="two runs or more"):
        armillary.compare(result)


def test_predictions_are_compared_and_shown() -> None:
    one, other = (armillary.train("llama-3-8b", "dgx-h100", batch=16, tp=tp) for tp in (2, 4))
    assert len(repr(one).split("\n")) == 3
    assert sum(one.breakdown.values()) == pytest.approx(one.step_time)
    assert one.interval[0] < one.step_time < one.interval[1]
    found = armillary.compare(one, other)
    assert found.breakdown.columns == ("part", "A", "B", "change")
    before, after = found.terms.total.ns
    assert sum(found.breakdown["A"]) == pytest.approx(before * 1e-9)
    # The steady state that the prediction takes for the rest is not the whole step, but close to it.
    assert before * 1e-9 == pytest.approx(one.step_time, rel=1e-2)
    assert after * 1e-9 == pytest.approx(other.step_time, rel=1e-2)
    kinds = [block["kind"] for block in one.blocks(changes=False)]
    assert kinds[:2] == ["headline", "bars"] and "timeline" in kinds and "memory" in kinds


def test_changes_of_a_plan_are_predictions() -> None:
    found = armillary.train("llama-3-8b", "dgx-h100", batch=16, tp=2)
    tried = {each.text: each.seconds for each in found.tried()}
    assert tried["tp 4 instead of 2"] == armillary.train(
        "llama-3-8b", "dgx-h100", **{**found.step.plan, "parallel": {**found.step.plan["parallel"], "tp": 4}},
        software=found.software.name,
    ).step_time  # fmt: skip


def test_measured_collectives_follow_a_faster_network(tmp_path: Path) -> None:
    found = armillary.train("llama-3-8b", "2xdgx-h100", batch=16, tp=2)
    tried = {each.text: each.seconds for each in found.tried()}
    other = scaled("2xdgx-h100", tmp_path, fabric=2.0).machine
    whole = armillary.train("llama-3-8b", other, software=found.software.name, **found.step.plan)
    faster = tried["networks between nodes twice the bandwidth"]
    assert whole.step_time == pytest.approx(faster) and faster < found.step_time
    assert not any("links alone" in text for text in tried)
