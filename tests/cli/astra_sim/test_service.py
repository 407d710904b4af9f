"""`armillary astra-sim service`: what it prints runs, and gives the ticks of the same files by hand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from armillary.trace import GraphBuilder, Trace, write_trace
from tests.platform.files.test_astra_sim_service import configuration


@pytest.mark.parametrize(
    ("back_end", "ticks"), [("analytical_congestion_aware", 117780), ("ns3", None), ("htsim", None)]
)
def test_the_printed_command_runs_what_was_written(back_end, ticks, inputs, call) -> None:
    step = GraphBuilder()
    step.all_reduce("sum", size="1 MiB")
    write_trace("et/step", Trace.replicate(step.graph(), ranks=8))
    Path("config.json").write_text(json.dumps(configuration(back_end)))
    result = call("astra-sim service config.json --out inputs")
    assert result.exit_code == 0, result.stderr
    words = shlex.split(result.stdout)
    assert words[:2] == ["armillary", "astra-sim"]
    lines = call(shlex.join(words[1:])).stdout.splitlines()
    finished = [line for line in lines if "finished," in line and "[workload]" in line]
    assert len(finished) == 8
    if ticks:
        assert all(f"finished, {ticks} cycles" in line for line in finished)
