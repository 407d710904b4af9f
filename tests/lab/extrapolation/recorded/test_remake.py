"""Recorded pipelines with other numbers of stages and microbatches, on graphs built by hand."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.lab.extrapolation import Extrapolated, extrapolate, recognise
from armillary.lab.extrapolation.recorded.remake import remake_recorded
from armillary.lab.extrapolation.recorded.stages import order_of
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.node import Node, graph_of
from armillary.workload.pipeline.tasks import tasks

SCHEMAS = {
    "aten::tensor_split": "(Tensor(a -> *) self, int sections, int dim=0) -> Tensor(a)[]",
    "aten::embedding": "(Tensor weight, Tensor indices) -> Tensor",
    "aten::mm": "(Tensor self, Tensor mat2) -> Tensor",
    "aten::relu": "(Tensor self) -> Tensor",
    "aten::add": ".Tensor(Tensor self, Tensor other) -> Tensor",
    "aten::threshold_backward": "(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
    "aten::embedding_dense_backward": "(Tensor grad_output, Tensor indices) -> Tensor",
    "aten::detach": "(Tensor(a) self) -> Tensor(a)",
    "aten::add_": ".Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "aten::div_": ".Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
    "aten::cat": "(Tensor[] tensors, int dim=0) -> Tensor",
    "aten::norm": "(Tensor self) -> Tensor",
    "aten::_foreach_add_": ".List(Tensor[](a!) self, Tensor[] other) -> ()",
    "c10d::send": "(Tensor[] tensors) -> ()",
    "c10d::recv_": "(Tensor[] tensors) -> ()",
}
ROWS, HIDDEN, VOCABULARY = 8, 16, 32
Named = tuple[int, tuple[int, ...]]
"""Number of a tensor and of its storage, and its shape."""
BACKWARD = "autograd::engine::evaluate_function: "


class Rank:
    """The step of one stage as a recorder sees it."""

    def __init__(
        self, stages: int, stage: int, layers: int, microbatches: int, schedule: str, odd: str
    ) -> None:
        self.nodes: list[Node] = []
        self.stages, self.stage, self.microbatches, self.odd = stages, stage, microbatches, odd
        self.numbers = 100
        self.message = -1
        share = layers // stages
        if odd == "uneven":
            share = layers - stages + 1 if stage == 0 else 1
        self.weights = [(1000 + layer, (HIDDEN, HIDDEN)) for layer in range(share)]
        self.first, self.last = stage == 0, stage == stages - 1
        ends = [(1, (VOCABULARY, HIDDEN))] * self.first + [(2, (HIDDEN, VOCABULARY))] * self.last
        self.gradients: dict[int, Named] = {}
        self.saved: dict[int, list[Named]] = {}
        self.results: list[Named] = []
        self.step = self.call("step")
        self.before()
        for kind, microbatch in order_of(schedule, stages, stage, microbatches):
            if kind == "F":
                self.forward(microbatch)
            elif kind == "B":
                self.backward(microbatch)
            else:
                self.communicate(kind)
        self.after([*ends[: self.first], *self.weights, *ends[self.first :]])

    def fresh(self, *shape: int) -> Named:
        self.numbers += 1
        return self.numbers, shape

    def call(
        self,
        name: str,
        above: int | None = None,
        given: Sequence[Any] = (),
        made: Sequence[Any] = (),
        ops: int = 0,
    ) -> int:
        node = Node(len(self.nodes), name, NodeType.COMP_NODE, duration_micros=1)
        node.data_deps = [node.id - 1] if node.id else []
        node.data_deps = [each for each in node.data_deps if self.nodes[each].type == NodeType.COMP_NODE] or [
            each.id for each in self.nodes[-2:-1]
        ]
        node.ctrl_deps = [] if above is None else [above]
        node.attrs = [
            ("is_cpu_op", "bool", True),
            ("num_ops", "int64", ops),
            ("tid", "int64", 7 + self.stage),
        ]
        node.attrs.append(("tensor_size", "uint64", 4 * ops))
        if name in SCHEMAS:
            node.attrs.append(("op_schema", "string", name + SCHEMAS[name]))
            node.inputs, node.outputs = _side(given), _side(made)
        self.nodes.append(node)
        return node.id

    def op(
        self, name: str, given: Sequence[Any], made: Sequence[Any], ops: int, above: int | None = None
    ) -> None:
        self.call(name, self.step if above is None else above, given, made, ops)

    def communicate(self, kind: str) -> None:
        sends, ahead = kind[0] == "S", kind[1] == "F"
        other = self.stage + (1 if ahead == sends else -1)
        issued = self.call("c10d::send" if sends else "c10d::recv_", self.step, [[self.fresh(ROWS, HIDDEN)]])
        node = Node(len(self.nodes), "gloo:send" if sends else "gloo:recv")
        node.type = NodeType.COMM_SEND_NODE if sends else NodeType.COMM_RECV_NODE
        node.data_deps = [issued, *([self.message] if self.message >= 0 else [])]
        pair = (self.stage, other) if sends else (other, self.stage)
        node.attrs = [("is_cpu_op", "bool", False), ("comm_size", "int64", 4 * ROWS * HIDDEN)]
        node.attrs += [
            (name, "int32", rank) for name, rank in zip(("comm_src", "comm_dst"), pair, strict=True)
        ]
        node.attrs.append(("comm_tag", "int32", 0))
        self.nodes.append(node)
        self.message = node.id

    def before(self) -> None:
        if self.first:
            self.inputs = [self.fresh(ROWS) for _ in range(self.microbatches)]
            whole = self.fresh(ROWS * self.microbatches)
            self.op("aten::relu", [whole], [whole], whole[1][0])
            self.op("aten::tensor_split", [whole], [self.inputs], 0)

    def forward(self, microbatch: int) -> None:
        x = self.fresh(ROWS, HIDDEN)
        saved = self.saved[microbatch] = []
        if self.first:
            self.op("aten::embedding", [(1, (VOCABULARY, HIDDEN)), self.inputs[microbatch]], [x], 3)
        for number, weight in enumerate(self.weights):
            a, b, y = (self.fresh(ROWS, HIDDEN) for _ in range(3))
            self.op("aten::mm", [x, weight], [a], 900 + (self.odd == "layers" and number == 1))
            self.op("aten::relu", [a], [b], 90)
            self.op("aten::add", [b, x], [y], 80 + (self.odd == "microbatches" and microbatch == 2))
            saved += [x, a]
            x = y
        if self.last:
            result = self.fresh(ROWS, VOCABULARY)
            self.op("aten::mm", [x, (2, (HIDDEN, VOCABULARY))], [result], 1800)
            self.results.append(result)
            saved.append(x)

    def accumulate(self, parameter: int, new: Named) -> None:
        root = self.call(BACKWARD + "torch::autograd::AccumulateGrad", self.step)
        inner = self.call("torch::autograd::AccumulateGrad", root)
        if parameter in self.gradients:
            own = self.gradients[parameter]
            self.op("aten::add_", [own, new], [own], 7, inner)
            return
        self.op("aten::detach", [new], [new], 0, inner)
        if parameter:
            self.gradients[parameter] = new

    def backward(self, microbatch: int) -> None:
        saved = self.saved[microbatch]
        grad = self.fresh(ROWS, HIDDEN)
        if self.last:
            root = self.call(BACKWARD + "MmBackward0", self.step)
            made = self.fresh(HIDDEN, VOCABULARY)
            self.op("aten::mm", [saved.pop(), self.results[microbatch]], [made], 1801, root)
            self.op("aten::mm", [(2, (HIDDEN, VOCABULARY)), made], [grad], 1802, root)
            self.accumulate(2, made)
        for number in range(len(self.weights) - 1, -1, -1):
            a, x = saved.pop(), saved.pop()
            weight = self.weights[number]
            self.call(BACKWARD + "AddBackward0", self.step)
            b, y, made = self.fresh(ROWS, HIDDEN), self.fresh(ROWS, HIDDEN), self.fresh(HIDDEN, HIDDEN)
            root = self.call(BACKWARD + "ReluBackward0", self.step)
            self.op("aten::threshold_backward", [grad, a], [b], 91, root)
            root = self.call(BACKWARD + "MmBackward0", self.step)
            self.op("aten::mm", [x, b], [made], 901, root)
            self.op("aten::mm", [b, weight], [y], 902, root)
            self.accumulate(weight[0], made)
            grad = y
        if self.first:
            root = self.call(BACKWARD + "EmbeddingBackward0", self.step)
            made = self.fresh(VOCABULARY, HIDDEN)
            self.op("aten::embedding_dense_backward", [grad, self.inputs[microbatch]], [made], 5, root)
            self.accumulate(1, made)
        else:
            self.accumulate(0, grad)

    def after(self, parameters: Sequence[Named]) -> None:
        for number, _ in parameters:
            self.op("aten::div_", [self.gradients[number]], [self.gradients[number]], 11)
        if self.odd == "norm":
            self.op("aten::norm", [(77, (5, 5))], [(78, (5, 5))], 25)
        if self.last:
            whole = self.fresh(ROWS * self.microbatches, VOCABULARY)
            self.op("aten::cat", [self.results], [whole], 0)
            self.nodes[-1].attrs[-2] = ("tensor_size", "uint64", 8 * ROWS * self.microbatches * VOCABULARY)
        optimizer = self.call("Optimizer.step#SGD.step", self.step)
        if self.odd == "fused":
            own = [self.gradients[number] for number, _ in parameters]
            self.op("aten::_foreach_add_", [list(parameters), own], [], 12 * len(own), optimizer)
            return
        for parameter in parameters:
            self.op("aten::add_", [parameter, self.gradients[parameter[0]]], [parameter], 12, optimizer)


def _side(tensors: Sequence[Any]) -> tuple[str, str, str]:
    def value(each: Any) -> Any:
        if isinstance(each, list):
            return [value(part) for part in each]
        number, shape = each
        return [number, number, 0, int(np.prod(shape)), 4, "cpu"]

    def shape(each: Any) -> Any:
        return [shape(part) for part in each] if isinstance(each, list) else list(each[1])

    def kind(each: Any) -> str:
        if isinstance(each, list):
            return f"GenericList[{','.join(kind(part) for part in each)}]"
        return "Tensor(float)"

    return str([value(t) for t in tensors]), str([shape(t) for t in tensors]), str([kind(t) for t in tensors])


def recording(
    stages: int, microbatches: int, layers: int = 8, schedule: str = "1f1b", odd: str = ""
) -> Trace:
    ranks = [Rank(stages, stage, layers, microbatches, schedule, odd) for stage in range(stages)]
    graphs = tuple(graph_of(rank.nodes, f"rank {number}") for number, rank in enumerate(ranks))
    return Trace(graphs, np.arange(stages, dtype=np.int32))


def scaled(trace: Trace, **scale: Any) -> Extrapolated:
    known, axes = recognise(trace)
    return extrapolate(known, scale, axes=axes)


def calls(graph: Graph) -> list[tuple[str, int, int]]:
    """Return what a rank does, in order: names, operations, and bytes moved or sent."""
    size = graph.ints("tensor_size") + graph.ints("comm_size")
    return list(zip(graph.names(), graph.ints("num_ops").tolist(), size.tolist(), strict=True))


def same(found: Extrapolated, truth: Trace) -> None:
    known, _ = recognise(truth)
    assert found.trace.n_ranks == known.n_ranks
    assert found.unclassified.operations == found.unclassified.bytes == 0
    for rank in range(known.n_ranks):
        ours, theirs = found.trace.graph(rank), known.graph(rank)
        assert calls(ours) == calls(theirs)
        for name in ("comm_src", "comm_dst"):
            assert ours.ints(name).tolist() == theirs.ints(name).tolist()
        assert (waits(ours) - waits(theirs)) <= received(ours)
        assert waits(theirs) <= waits(ours)


def waits(graph: Graph) -> set[tuple[int, int]]:
    ptr, parents = graph.parents()
    return {
        (node, each) for node in range(graph.n_nodes) for each in parents[ptr[node] : ptr[node + 1]].tolist()
    }


def received(graph: Graph) -> set[tuple[int, int]]:
    """Return what comes next and what was received: PyTorch waits for it, which a recording need not show."""
    return {
        (node, node - 1)
        for node in range(1, graph.n_nodes)
        if graph.types[node - 1] == NodeType.COMM_RECV_NODE
    }


@pytest.mark.parametrize(
    ("schedule", "old", "scale", "new"),
    [
        ("1f1b", (2, 4), {"microbatches": 2}, (2, 8)),
        ("gpipe", (2, 3), {"microbatches": 3}, (2, 9)),
        ("1f1b", (4, 8), {"microbatches": "1/2"}, (4, 4)),
        ("1f1b", (2, 4), {"pp": 4}, (4, 4)),
        ("gpipe", (2, 4), {"pp": 4}, (4, 4)),
        ("1f1b", (2, 4), {"pp": 8, "microbatches": 2}, (8, 8)),
        ("1f1b", (4, 8), {"pp": 8}, (8, 8)),
    ],
)
def test_as_the_run_of_that_size(
    schedule: str, old: tuple[int, int], scale: dict[str, Any], new: tuple[int, int]
) -> None:
    factors = {axis: Fraction(value) for axis, value in scale.items()}
    same(scaled(recording(*old, schedule=schedule), **factors), recording(*new, schedule=schedule))


@settings(max_examples=5)
@given(st.integers(1, 3), st.integers(0, 4), st.sampled_from([1, 2]))
def test_any_number(times: int, more: int, factor: int) -> None:
    """Whatever the numbers: layers of old stages, stages, microbatches."""
    new, layers = 2 * times, 2 * max(2, times)
    before = max(2, -(-new // factor)) + more
    scale = {"pp": new, "microbatches": factor}
    same(scaled(recording(2, before, layers), **scale), recording(new, before * factor, layers))


@pytest.mark.parametrize("stages", [None, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_put_together_as_they_were_stages_are_what_they_were(schedule: str, stages: int | None) -> None:
    trace, _ = recognise(recording(2, 4, schedule=schedule))
    made = remake_recorded(trace, stages, Fraction(1), lambda *_: None, lambda _: None)
    assert made.grid == trace.grid
    for ours, theirs in zip(made.graphs, trace.graphs, strict=True):
        assert calls(ours) == calls(theirs)
        assert waits(theirs) <= waits(ours) <= waits(theirs) | received(theirs)


def test_the_same_numbers_leave_it_as_it_is() -> None:
    trace, _ = recognise(recording(2, 4))
    found = extrapolate(trace, {"pp": 2, "microbatches": 1})
    assert found.trace is trace


@pytest.mark.parametrize("kind", ["1f1b", "gpipe"])
def test_messages_are_around_the_tasks_of_the_schedule(kind: str) -> None:
    for stages, microbatches in ((2, 2), (4, 9)):
        for stage, own in enumerate(tasks(kind, stages, 1, microbatches)):
            order = order_of(kind, stages, stage, microbatches)
            assert [each for each in order if len(each[0]) == 1] == [(t.kind, t.microbatch) for t in own]


def test_work_that_no_rule_knows_is_named() -> None:
    found = scaled(recording(2, 4, odd="norm"), pp=4)
    assert found.unclassified.names == {"aten::norm": 2}
    assert found.unclassified.operations > 0


@pytest.mark.parametrize(
    ("trace", "scale", "words"),
    [
        (recording(2, 4), {"pp": 8}, "4 microbatches for 8 stages"),
        (recording(2, 4), {"microbatches": "1/4"}, "1 microbatches for 2 stages"),
        (recording(2, 4), {"microbatches": "1/3"}, "whole number"),
        (recording(2, 16), {"pp": 16}, "8 layers"),
        (recording(4, 4), {"pp": 2}, "fewer than the 4 stages"),
        (recording(2, 4, 2), {"pp": 4}, "repeats"),
        (recording(2, 4, odd="layers"), {"pp": 4}, "layer"),
        (recording(2, 4, odd="fused"), {"pp": 4}, "several layers at once"),
        (recording(2, 4, odd="microbatches"), {"microbatches": 2}, "microbatch 2 does something else"),
    ],
)
def test_what_is_not_seen_is_refused(trace: Trace, scale: dict[str, Any], words: str) -> None:
    factors = {axis: Fraction(value) for axis, value in scale.items()}
    with pytest.raises(InputError, match=words) as error:
        scaled(trace, **factors)
    assert "expected" in str(error.value)
    assert "\n" not in str(error.value)


def test_stages_that_were_made_are_scaled_no_further() -> None:
    made = scaled(recording(2, 4), pp=4).trace
    for graph in made.graphs:
        assert len(set(graph.ints("tid")[graph.has("tid")].tolist())) == 1
    for axis in ("batch", "microbatches", "pp"):
        with pytest.raises(InputError, match="divided into more stages"):
            extrapolate(made, {axis: 8})


def test_another_schedule_is_refused() -> None:
    ranks = [Rank(2, stage, 8, 4, "gpipe" if stage else "1f1b", "") for stage in range(2)]
    trace = Trace(
        tuple(graph_of(rank.nodes, f"rank {n}") for n, rank in enumerate(ranks)), np.arange(2, dtype=np.int32)
    )
    with pytest.raises(InputError, match="expected"):
        scaled(trace, microbatches=2)
