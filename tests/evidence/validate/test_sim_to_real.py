"""Open loads: what their client sends, and which requests a row is about."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from armillary.evidence.validate import sim_to_real
from armillary.evidence.validate.sim_to_real import COLUMNS, PROMPTS, load_of, read_points

ROW = {
    "experiment": "1", "simulator": "other", "model": "meta-llama/Llama-3.1-8B-Instruct", "workload": "roleplay",
    "stage_index": "-1", "metric_name": "e2e_mean", "predicted": "", "actual": "2000", "hardware": "H100",
    "precision": "FP16", "tp": "1", "max_num_batched_tokens": "2048",
}  # fmt: skip


def put(path: Path, *rows: dict[str, str]) -> Path:
    lines = [",".join((ROW | row)[name] for name in COLUMNS) for row in rows]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def test_a_client_sends_a_hundred_prompts_again_and_again_at_exponential_gaps() -> None:
    requests, stages = load_of("codegen")
    assert [np.count_nonzero(stages == each) for each in (0, 1)] == [3000, 6000]
    for stage, begin in ((0, 0), (1, 600)):
        at = requests.arrival[stages == stage] / 1e9
        assert at[0] == begin and at[-1] < begin + 600
        gaps = np.diff(at)
        # Of exponential gaps mean and deviation are equal.
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert requests.shared is not None and len(set(requests.shared)) == PROMPTS == 100
    assert requests.shared[0] == requests.shared[100] != requests.shared[1]


@pytest.mark.parametrize(("simulator", "expected"), [("other", 2000.0), ("llmservingsim", 1000.0)])
def test_rows_of_a_simulator_that_replays_the_first_requests_are_about_these(
    simulator: str, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = np.concatenate((np.full(300, 1.0), np.full(300, 3.0)))
    outcome = SimpleNamespace(e2e=many)
    monkeypatch.setattr(sim_to_real, "_served", lambda *_: (outcome, np.zeros(600)))
    row = {"simulator": simulator, "predicted": "1"}
    (point,) = read_points([put(tmp_path / "r.csv", row)])
    assert sim_to_real._predicted(point) == expected
