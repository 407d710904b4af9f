"""Groups of the nodes of a trace: few entries each, by calls, by modules, and in runs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report.trace_drawing import drawing
from armillary.report.trace_tree import FEW, tree, tree_of_boxes
from armillary.trace import GraphBuilder, Node, graph_of


def paths(found, labels):
    """Return for every box the names of the groups around it, outermost first, and its own."""
    around = [[]]
    for above, label in zip(found.parent[1:], found.label[1:], strict=True):
        around.append([*around[above], label])
    return [[*around[group], label] for group, label in zip(found.group.tolist(), labels, strict=True)]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_node_is_in_one_group_and_no_group_is_long(data):
    n = data.draw(st.integers(1, 700))
    calls = data.draw(st.booleans())

    def above(at):
        return [data.draw(st.integers(max(0, at - 9), at - 1)) if at < 40 else at // 30]

    names = st.sampled_from(["a.b.c", "a.b.d", "a/e", "aten::add", "void f(int)", "..", ""])
    nodes = [
        Node(
            at,
            data.draw(names) if at < 40 else f"m.{at // 90}.x",
            ctrl_deps=above(at) if calls and at else [],
        )
        for at in range(n)
    ]
    drawn = drawing(graph_of(nodes))
    found = tree(drawn)
    assert len(found.group) == n and 0 <= found.group.min() <= found.group.max() < len(found.parent)
    assert found.parent[0] == -1 and all(above < at for at, above in enumerate(found.parent[1:], 1))
    entries = Counter(found.group.tolist()) + Counter(found.parent[1:])
    # A call stands beside what it calls.
    assert max(entries.values()) <= FEW + 1
    assert all(entries[group] >= 2 for group in range(1, len(found.parent)))


def test_calls_nest():
    b = GraphBuilder()
    step = b.compute("step")
    conv = b.compute("conv", ctrl_after=[step])
    b.compute("kernel", ctrl_after=[conv])
    b.compute("loss", ctrl_after=[step])
    drawn = drawing(b.graph())
    found = tree(drawn)
    assert found.calls
    assert paths(found, drawn.labels) == [
        ["step", "step"], ["step", "conv", "conv"], ["step", "conv", "kernel"], ["step", "loss"]]  # fmt: skip


def test_an_order_by_control_is_no_nest_of_calls():
    found = tree(drawing(graph_of([Node(at, "op", ctrl_deps=[at - 1] if at else []) for at in range(3000)])))
    assert not found.calls and len(found.parent) < 500


def test_layers_and_modules_group_what_follows_each_other():
    b = GraphBuilder()
    for layer in (0, 1, 0):
        for name in ("mlp.up.gemm", "mlp.down.gemm", "attention"):
            b.compute(name)
            b.nodes[-1].attrs += [("micro_batch", "int32", 0), ("layer", "int32", layer)]
    drawn = drawing(b.graph())
    named = paths(tree(drawn), drawn.labels)
    assert named[0] == ["micro-batch 0", "layer 0", "mlp", "mlp.up.gemm"]
    assert named[5] == ["micro-batch 0", "layer 1", "attention"]
    # The layer comes again, backwards.
    assert tree(drawn).label.count("layer 0") == 2


def test_groups_by_boxes_hold_their_nodes():
    nodes = drawing(graph_of([Node(at, f"{'ab'[at % 2]}.{at}") for at in range(60)]))
    found = tree_of_boxes(nodes, drawing(nodes.graph, "names"))
    assert sorted(found.label[at] for at, above in enumerate(found.parent) if above == 0) == ["a.*", "b.*"]
