"""Stand-ins: valid, as long as the original, and a function of its times alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.cli import main
from armillary.lab.privacy.machines import usual_machines
from armillary.lab.privacy.obfuscate import LEVELS, obfuscate
from armillary.lab.privacy.population import draw
from armillary.lab.privacy.surrogate import surrogate
from armillary.platform.kernels import Compute
from armillary.trace import GraphBuilder, Trace, encode, write_trace
from armillary.trace.check_ranks import check_trace


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 6, 8, 12, 64, 4096]), st.floats(7.5, 10.5), st.floats(0.01, 0.1), st.integers(0, 99)
)  # fmt: skip
def test_times_are_kept(ranks: int, exponent: float, tolerance: float, key: int) -> None:
    machines = usual_machines(ranks)[:1]
    found = surrogate(ranks, machines, np.array([10.0**exponent]), tolerance, str(key))
    made = found.draft.trace()
    assert made.n_ranks == ranks
    assert not [finding for finding in check_trace(made).all if finding.severity == "error"]
    ticks = armillary.simulate(made, machines[0].platform).total_ticks
    assert abs(ticks / 10.0**exponent - 1) <= tolerance


def test_nothing_but_times_goes_in() -> None:
    trace = draw(1, seed=3)[0].trace()
    machines = usual_machines(trace.n_ranks)
    made = obfuscate(trace, machines, LEVELS[4], key="k")
    ticks = [float(armillary.simulate(trace, machine.platform).total_ticks) for machine in machines]
    again = surrogate(trace.n_ranks, machines, np.array(ticks), 0.05, "k").draft.trace()
    assert [encode(graph) for graph in made.trace.graphs] == [encode(graph) for graph in again.graphs]
    assert np.abs(made.errors).max() <= 0.05
    other = obfuscate(trace, machines, LEVELS[4], key="l")
    assert other.trace.graphs[0].n_nodes != made.trace.graphs[0].n_nodes


@pytest.mark.slow
def test_a_time_that_cannot_be_met_is_refused(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.all_reduce("r", 100, after=[b.compute("k", flops=10, bytes=10)])
    graph = b.graph()
    write_trace(tmp_path / "tiny", Trace.replicate(graph, 4))
    command = ["trace", "obfuscate", str(tmp_path / "tiny"), "-o", str(tmp_path / "out"), "--level", "4"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "no surrogate takes 7.49" in result.output + str(result.exception)
    assert not list(tmp_path.glob("out*"))


def test_a_machine_that_cannot_time_kernels_is_refused() -> None:
    machine = usual_machines(4)[0]
    bare = replace(machine, platform=replace(machine.platform, compute=Compute()))
    with pytest.raises(InputError, match="machine h100: a surrogate has no recorded times"):
        surrogate(4, [bare], np.array([1e8]), 0.05, "k")


def test_one_rank_of_several_is_refused(tmp_path: Path) -> None:
    write_trace(tmp_path / "plain", draw(1, seed=3)[0].trace())
    command = [
        "trace",
        "obfuscate",
        str(tmp_path / "plain.0.et"),
        "-o",
        str(tmp_path / "x.et"),
        "--level",
        "4",
    ]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "expected the prefix of all" in result.output + str(result.exception)
