"""What used to be said wrongly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from armillary import simulate
from armillary.base.errors import InputError
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.report import collectives
from armillary.trace import GraphBuilder, RankGrid, Trace

Call = Callable[[str], Result]


def test_a_study_is_no_saved_timeline(inputs: Path, call: Call) -> None:
    made = call("explain study.yaml")
    assert made.exit_code == 2 and "is not a saved timeline" in made.stderr and "pickle" not in made.stderr


def test_work_without_end_between_checkpoints_is_refused(inputs: Path, call: Call) -> None:
    from armillary.explore.whole_run.goodput import Checkpoints, Recovery
    from armillary.explore.whole_run.run import from_steps, whole_run

    made = call(
        "plan whole-run --step-time 1s --tokens-per-step 1M --ranks 8 --tokens 1B --mtbf 9days "
        "--checkpoint 10s --interval 0s"
    )
    assert made.exit_code == 2 and "--interval: got '0s', expected more than 0" in made.stderr
    with pytest.raises(InputError, match="interval: got 0"):
        whole_run(from_steps(8, 1.0, 1e6, 1e9), None, Checkpoints(10.0), Recovery(60.0), 0.0)


def test_all_algorithms_are_named(call: Call) -> None:
    made = call("collective show nonsense --ranks 4")
    assert made.exit_code == 2 and "in-switch" in made.stderr
    assert "did you mean 'in-switch'" in call("collective show inswich --ranks 4").stderr
    assert call("collective show inswitch --ranks 4").stdout.startswith("in-switch all-reduce")


@pytest.mark.parametrize(("more", "assumed"), [("", True), ("--sequence 2048 ", False)])
def test_an_assumed_sequence_is_said_first(inputs: Path, call: Call, more: str, assumed: bool) -> None:
    words = f"llama-3-8b --ranks 2 --tp 2 --batch 1 {more}"
    made = call(f"generate train {words} --json w.json")
    assert made.exit_code == 0
    assert ("8,192 assumed" in made.stdout.splitlines()[0]) == assumed
    told = json.loads(Path("w.json").read_text())
    assert told["sequence_assumed"] == assumed and told["sequence_count"] == (8192 if assumed else 2048)
    assert ("8,192 assumed" in call(f"generate memory {words}").stdout) == assumed


@pytest.mark.parametrize("dp", [1, 2])
def test_a_group_of_all_ranks_keeps_its_name(dp: int) -> None:
    builder = GraphBuilder()
    builder.all_gather("x", 1000, group="tp")
    builder.all_reduce("y", 10)
    trace = Trace((builder.graph(),), np.zeros(4 * dp, np.int32), RankGrid((4, dp), {"tp": (0,), "dp": (1,)}))
    timeline = simulate(trace, Platform((Dimension("d", "Switch", 4 * dp, 50.0, 500.0),)))
    rows = {row.label: row.group_size for row in collectives(timeline, 0)}
    assert rows == {"all-gather@tp": 4, "all-reduce": 4 * dp}


def test_a_program_is_made_of_its_fields(inputs: Path) -> None:
    """Not of all that it remembers: what was looked up once came back as an argument."""
    from armillary.engine.messages import lower as module
    from armillary.engine.physical import lower as physical

    before = physical.Build.assemble

    def reading(self: physical.Build, warnings: list[str]) -> object:
        program = before(self, warnings)
        assert program.is_collective is not None and program.item_position is not None
        return program

    platform = Platform((Dimension("d", "Switch", 2, 50.0, 500.0),))
    builder = GraphBuilder()
    builder.all_reduce("x", 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Build, "assemble", reading)
        assert simulate(Trace.replicate(builder.graph(), 2), platform, network_model="flow").total_ticks > 0
