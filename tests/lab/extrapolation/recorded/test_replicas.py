"""Replicas that are added to recorded graphs, on graphs built by hand."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.lab.extrapolation.recorded.replicas import FIRST, USUAL, Gradient, buckets
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.node import Node, graph_of

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
DETACH = "aten::detach(Tensor(a) self) -> Tensor(a)"
ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
Named = tuple[int, tuple[int, ...]]
"""Number of a tensor and of its storage, and its shape."""
SIDE = 512
"""A parameter of 512 x 512 numbers is 1 MiB: the first fills a bucket."""


class Recording:
    """Nodes of one thread, each after the one before."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def call(
        self,
        name: str,
        above: int | None = None,
        schema: str = "",
        inputs: Sequence[Named] = (),
        outputs: Sequence[Named] = (),
        cpu: bool = True,
    ) -> int:
        node = Node(len(self.nodes), name, NodeType.COMP_NODE)
        node.data_deps = [node.id - 1] if node.id else []
        node.ctrl_deps = [] if above is None else [above]
        node.attrs = [("is_cpu_op", "bool", cpu), ("num_ops", "int64", 0), ("duration_ns", "int64", 10)]
        if schema:
            node.attrs.append(("op_schema", "string", schema))
            node.inputs, node.outputs = _side(inputs), _side(outputs)
        self.nodes.append(node)
        return node.id

    def gradient(self, number: int, shape: tuple[int, ...]) -> int:
        """Make a gradient, and let a leaf take it over."""
        made = self.call("autograd::engine::evaluate_function: MmBackward0")
        self.call("aten::mm", made, MM, [(900, shape), (901, shape)], [(number, shape)])
        root = self.call("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
        inner = self.call("torch::autograd::AccumulateGrad", root)
        return self.call("aten::detach", inner, DETACH, [(number, shape)], [(number, shape)])

    def more(self, number: int, shape: tuple[int, ...]) -> int:
        """Add to a gradient."""
        root = self.call("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
        inner = self.call("torch::autograd::AccumulateGrad", root)
        given = [(number, shape), (number + 1000, shape)]
        return self.call("aten::add_", inner, ADD, given, [(number, shape)])

    def update(self, *numbers: int) -> int:
        """Let an optimizer use gradients; return its first node."""
        first = self.call("Optimizer.step#SGD.step")
        for number in numbers:
            shape = (SIDE, SIDE)
            given = [(number + 2000, shape), (number, shape)]
            self.call("aten::add_", first, ADD, given, given[:1])
        return first

    def graph(self) -> Graph:
        return graph_of(self.nodes)


def _side(tensors: Sequence[Named]) -> tuple[str, str, str]:
    values = [[number, number, 0, _count(shape), 4, "cpu"] for number, shape in tensors]
    return str(values), str([list(shape) for _, shape in tensors]), str(["Tensor(float)"] * len(tensors))


def _count(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1]


def added(graph: Graph, size: int = 2) -> Trace:
    known, axes = recognise(Trace.replicate(graph, 1))
    return extrapolate(known, {"dp": size}, axes=axes).trace


def reductions(graph: Graph) -> list[tuple[int, int]]:
    """Return position and bytes of collectives."""
    sizes = graph.ints("comm_size").tolist()
    return [(node, sizes[node]) for node, kind in enumerate(graph.types) if kind == NodeType.COMM_COLL_NODE]


def before(graph: Graph, node: int) -> set[str]:
    """Return the names of all that a node waits for, with the ids of those that were recorded."""
    ptr, parents = graph.parents()
    found, todo = set(), [node]
    while todo:
        for parent in parents[ptr[todo[-1]] : ptr[todo.pop() + 1]].tolist():
            if parent not in found:
                found.add(parent)
                todo.append(parent)
    return {f"{graph.name(each)} {graph.ids[each]}" for each in found}


def test_gradients_are_reduced_as_they_are_made_and_awaited_by_the_optimizer() -> None:
    run = Recording()
    shape = (SIDE, SIDE)
    ends = [run.gradient(number, shape) for number in (1, 2, 3)]
    first = run.update(1, 2, 3)
    graph = added(run.graph(), 4).graph(3)
    (one, small), (two, large) = reductions(graph)
    assert (small, large) == (FIRST, 2 * FIRST)
    assert f"aten::detach {ends[0]}" in before(graph, one)
    assert not before(graph, one) & {f"aten::mm {ends[1] - 3}", f"aten::mm {ends[2] - 3}"}
    assert f"aten::detach {ends[2]}" in before(graph, two)
    update = int((graph.ids == first).argmax())
    assert {f"gradients {graph.ids[one]}", f"gradients {graph.ids[two]}"} <= before(graph, update)
    assert not any("gradients" in name for name in before(graph, one))


def test_the_last_microbatch_is_reduced() -> None:
    run = Recording()
    run.gradient(1, (SIDE, SIDE))
    last = run.more(1, (SIDE, SIDE))
    run.update(1)
    graph = added(run.graph()).graph(0)
    assert [size for _, size in reductions(graph)] == [FIRST]
    assert f"aten::add_ {last}" in before(graph, reductions(graph)[0][0])


def test_every_step_is_reduced() -> None:
    run = Recording()
    for _ in range(2):
        run.gradient(1, (SIDE, SIDE))
        run.update(1)
    graph = added(run.graph()).graph(0)
    (one, _), (two, _) = reductions(graph)
    assert f"gradients {graph.ids[one]}" in before(graph, two)


def test_a_gradient_that_no_optimizer_reads_is_not_reduced() -> None:
    """Such as that of what a stage received."""
    run = Recording()
    run.gradient(1, (SIDE, SIDE))
    run.gradient(7, (64, 64))
    run.update(1)
    assert [size for _, size in reductions(added(run.graph()).graph(0))] == [FIRST]


def test_a_number_in_memory_that_was_freed_is_not_reduced() -> None:
    """PyTorch makes a tensor of a factor without an operator, here where a stage's input had its gradient."""
    run = Recording()
    run.gradient(1, (SIDE, SIDE))
    run.gradient(7, (64, 64))
    run.update(1)
    given, shapes, types = run.nodes[-1].inputs
    run.nodes[-1].inputs = (
        str([*literal_eval(given), [2007, 7, 0, 1, 8, "cpu"]]),
        str([*literal_eval(shapes), []]),
        str([*literal_eval(types), "Tensor(double)"]),
    )
    assert [size for _, size in reductions(added(run.graph()).graph(0))] == [FIRST]


def test_what_is_not_seen_is_refused() -> None:
    run = Recording()
    run.gradient(1, (SIDE, SIDE))
    with pytest.raises(InputError, match="gradients that no optimizer uses"):
        added(run.graph())
    run.update(5)
    with pytest.raises(InputError, match="gradients that no optimizer uses"):
        added(run.graph())
    run.update(1)
    run.call("gemm", cpu=False)
    with pytest.raises(InputError, match="kernels on a device"):
        added(run.graph())


@given(st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(1, 2 * USUAL)), max_size=40))
def test_buckets_are_closed_when_they_are_full(sizes: list[tuple[int, int]]) -> None:
    gradients = tuple(Gradient(place, -(-size // width), width) for place, (width, size) in enumerate(sizes))
    made = buckets(gradients)
    assert sorted(each.ready for bucket in made for each in bucket) == list(range(len(gradients)))
    for width in (2, 4):
        own = [bucket for bucket in made if bucket[0].width == width]
        assert [each for bucket in own for each in bucket] == [g for g in gradients if g.width == width]
        for number, bucket in enumerate(own):
            full, total = (USUAL if number else FIRST), sum(each.bytes for each in bucket)
            assert total - bucket[-1].bytes < full
            assert total >= full or number == len(own) - 1
