"""A step with weights in remote memory moves each weight where it must, and a full memory is told of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.trace import NodeType, Trace
from armillary.workload.emit.remote_weights import RemoteWeights, remote_weights_trace
from armillary.workload.generate import over_capacity
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

MODEL = load_model("mixtral-8x7b")
PLAN = Plan.model_validate(
    {"ranks": 16, "batch": 16, "sequence": 128, "parallel": {"ep": 8}, "numbers": {"gradients": "bf16"}}
)


def bytes_of(trace: Trace, kind: NodeType) -> int:
    """Return what all nodes of a kind access."""
    graph = trace.graphs[0]
    return int(graph.ints("tensor_size", 0)[graph.types == kind].sum())


@pytest.mark.parametrize("in_switch", [False, True])
def test_bytes(in_switch: bool) -> None:
    """Twice all weights, once all gradients: in parts of what ranks share, or whole if switches copy."""
    trace = remote_weights_trace(MODEL, PLAN, RemoteWeights(in_switch))
    members = {"dp+cp": 16, "edp": 2}
    own = sum(
        2 * (count if in_switch else -(-2 * count // members[axis_set]) / 2)
        for layer in layers_of(MODEL, PLAN) for axis_set, count in layer.parameters.items()
    )  # fmt: skip
    assert bytes_of(trace, NodeType.MEM_LOAD_NODE) == 2 * own
    assert bytes_of(trace, NodeType.MEM_STORE_NODE) == own
    graph = trace.graphs[0]
    memory = np.isin(graph.types, (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE))
    assert (graph.ints("in_switch", 0)[memory] == in_switch).all()


def test_states_pass_through_the_npus_if_these_update_them() -> None:
    plain, more = (
        remote_weights_trace(MODEL, PLAN, RemoteWeights(states=states)) for states in (False, True)
    )
    stored = bytes_of(more, NodeType.MEM_STORE_NODE) - bytes_of(plain, NodeType.MEM_STORE_NODE)
    assert stored == pytest.approx(6 * bytes_of(plain, NodeType.MEM_STORE_NODE), rel=1e-6)  # 12 bytes for 2


def test_more_is_loaded_ahead_with_a_longer_prefetch() -> None:
    def first_wait(prefetch: int) -> int:
        graph = remote_weights_trace(MODEL, PLAN, RemoteWeights(prefetch=prefetch)).graphs[0]
        loads = np.flatnonzero(graph.types == NodeType.MEM_LOAD_NODE)
        return int(np.diff(graph.parents()[0])[loads].tolist().index(1))

    assert [first_wait(prefetch) for prefetch in (0, 1, 3)] == [1, 3, 7]


def test_who_runs_out_of_memory_when_and_by_how_much() -> None:
    assert over_capacity(MODEL, PLAN, 0) == over_capacity(MODEL, PLAN, 10**14) == ""
    told = over_capacity(MODEL, PLAN, 80 * 10**9)
    assert "ranks of pipeline stage 0 at the peak, in the backward of head" in told
    assert "more than npu.memory.capacity, 74.51 GiB" in told


def test_a_run_warns(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    study.write_text(
        "platform:\n  network: [{topology: Switch, size: 2, bandwidth: 100 GB/s, latency: 1 us}]\n"
        "  npu: {peak: 1 PFLOP/s, memory: {bandwidth: 1 TB/s, capacity: 16 GiB}}\n"
        "workload: {generate: {model: llama-2-7b, batch: 2, sequence: 128}}\n"
    )
    result = CliRunner().invoke(main, ["run", str(study)], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    assert "more than npu.memory.capacity, 16 GiB" in result.output
