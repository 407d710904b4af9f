"""Data dependencies against sets of bytes, pair by pair."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.dataflow import WHOLE, Access, Range, access, data_dependencies
from armillary.convert.pytorch.flops import Arguments

RANGE = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 12))
OPS = st.lists(
    st.builds(
        Access,
        st.lists(RANGE, max_size=3),
        st.lists(RANGE, max_size=2),
        st.lists(st.integers(0, 2), max_size=1) | st.just([]),
    ),
    max_size=14,
)


def conflicts(ops: list[Access]) -> list[set[int]]:
    """Return, for every operator, all earlier ones with which it shares a byte that one of both writes."""
    epoch = [0, 0, 0]
    touched: list[tuple[set[Any], set[Any]]] = []
    result = []

    def spread(ranges: Any) -> set[Any]:
        return {
            (storage, epoch[storage], byte)
            for storage, first, after in ranges
            for byte in range(first, after)
        }

    for op in ops:
        for storage in op.fresh:
            epoch[storage] += 1
        reads, writes = spread(op.reads), spread(op.writes)
        result.append({at for at, (r, w) in enumerate(touched) if (reads | writes) & w or writes & r})
        touched.append((reads, writes))
    return result


def reachable(direct: list[Any]) -> list[set[int]]:
    result: list[set[int]] = []
    for before in direct:
        result.append(set(before).union(*(result[at] for at in before)))
    return result


@given(OPS)
def test_same_order_as_sets_of_bytes(ops: list[Access]) -> None:
    found, expected = data_dependencies(ops), conflicts(ops)
    assert reachable(found) == reachable(expected)
    for before, true in zip(found, expected, strict=True):
        assert set(before) <= true and list(before) == sorted(set(before))


def test_only_the_last_write_and_the_reads_since_are_named() -> None:
    whole, low, high = [(1, 0, 8)], [(1, 0, 4)], [(1, 4, 8)]
    ops = [Access((), whole), Access(low), Access(high), Access((), low), Access(whole), Access((), whole)]
    assert data_dependencies(ops) == [(), (0,), (0,), (1,), (0, 3), (2, 4)]


def test_a_new_storage_of_an_old_id_waits_for_nobody() -> None:
    used = [(1, 0, 8)]
    assert data_dependencies([Access((), used), Access(used), Access((), used, [1])])[2] == ()
    assert data_dependencies([Access((), used), Access((), (), [1]), Access((), used), Access(used)]) == [
        (),
        (),
        (),
        (2,),
    ]


def test_work_grows_with_the_number_of_operators(lines: Callable[[Callable[[], object]], int]) -> None:
    rng = random.Random(0)

    def some() -> list[Range]:
        first = rng.randrange(0, 1 << 20, 4096)
        return [(rng.randrange(500), first, first + 65536)]

    ops = [Access([*some(), *some()], some(), [at % 500] if at % 7 == 0 else ()) for at in range(20_000)]
    assert lines(lambda: data_dependencies(ops)) < 2.5 * lines(lambda: data_dependencies(ops[:10_000]))
    assert sum(map(len, data_dependencies(ops))) < 10 * len(ops)


def test_many_readers_and_pieces_stay_linear() -> None:
    pieces = [Access((), [(1, at, at + 1)]) for at in range(5000)]
    readers = [Access([(1, at, at + 1)]) for at in range(5000) for _ in range(3)]
    found = data_dependencies([*pieces, *readers, Access((), [(1, 0, 5000)]), Access([(1, 0, 5000)])])
    assert sum(map(len, found)) == 15_000 + 15_000 + 1


def side(*tensors: Any, strides: list[Any] | None = None) -> Arguments:
    return Arguments(list(tensors), [[]] * len(tensors), ["Tensor(float)"] * len(tensors), strides)


X, Y, Z = [1, 2, 4, 6, 4, "cpu"], [3, 4, 0, 6, 4, "cpu"], [5, 6, 0, 6, 4, "cpu"]


def at(tensor: list[Any]) -> Range:
    return tensor[1], tensor[2] * tensor[4], (tensor[2] + tensor[3]) * tensor[4]


def test_what_operators_touch() -> None:
    add = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert access(add, side(X, Y), side(Z)) == Access((at(X), at(Y)), (at(Z),), (6,))
    assert access(add, side(X, Y), side(Z), allocates=False) == Access((at(X), at(Y)), (at(Z),))
    in_place = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    assert access(in_place, side(X, Y), side(X)) == Access((at(Y),), (at(X),))
    out = "aten::add.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"
    assert access(out, side(X, Y, Z), side(Z)) == Access((at(X), at(Y)), (at(Z),))
    assert access("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", side(X), side(X)) == Access()
    assert access("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", side(X), side(X)).writes == ()
    assert access("aten::empty.memory_format(SymInt[] size) -> Tensor", side(), side(X)) == Access(
        (), (), (2,)
    )
    assert access("", side(X), side(Y)) == Access((at(X),), (at(Y),), (4,))


def test_what_collectives_touch() -> None:
    reduced = (
        "c10d::allreduce_(Tensor[] tensors, int timeout) -> (Tensor[], __torch__.torch.classes.c10d.Work)"
    )
    tensors = Arguments([[X, Y], 5], [[[6], [6]], []], ["GenericList[Tensor(float),Tensor(float)]", "Int"])
    assert access(reduced, tensors, side()) == Access((), (at(X), at(Y)))
    gathered = "c10d::_allgather_base_(Tensor output_tensor, Tensor input_tensor, bool async_op=True) -> (Tensor, Work)"
    assert access(gathered, side(X, Y), side(X)) == Access((at(Y),), (at(X),))
    assert access("c10d::send(Tensor[] tensors, int dst) -> Work", tensors, side()).writes == ()
    assert access("c10d::recv_(Tensor[] tensors, int src) -> Work", tensors, side()).reads == ()
    waited = access("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor", side(X), side(X))
    assert waited == Access((at(X),), (at(X),))


def test_ranges() -> None:
    read = "aten::sum(Tensor self) -> Tensor"
    column = Arguments([[1, 2, 3, 8, 2, "cpu"]], [[4, 2]], ["Tensor(c10::Half)"], [[[10, 1]]])
    assert column.strides and access(
        read, Arguments(column.values, column.shapes, column.types, [[10, 1]]), side()
    ).reads == ((2, 6, 2 * (3 + 32)),)
    spread = Arguments([[1, 2, 0, 40, 2, "cpu"]], [[20, 2]], ["Tensor(c10::Half)"], [[0, 1]])
    assert access(read, spread, side()).reads == ((2, 0, 4),)
    for value in (7, [7]):
        assert access(read, side(value), side()).reads == ((7, *WHOLE),)
    nothing = Arguments([[9, 0, 0, 0, 0, ""]], [[]], ["Tensor(nullptr (uninitialized))"])
    assert access(read, nothing, side()) == Access()


ANY = st.recursive(
    st.none() | st.integers(-3, 9) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)
TYPE = st.sampled_from(["Tensor(float)", "GenericList[Tensor(float),None]", "GenericList[", "Int"]) | ANY
SIDE = st.builds(
    Arguments, *[st.lists(ANY, max_size=4)] * 2, st.lists(TYPE, max_size=4), st.lists(ANY, max_size=4)
)


@given(
    st.sampled_from(
        ["aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten::empty() -> Tensor", ")("]
    ),
    SIDE,
    SIDE,
)
def test_whatever_stands_there_is_an_access(schema: str, inputs: Arguments, outputs: Arguments) -> None:
    found = access(schema, inputs, outputs)
    assert all(0 <= first < after for _, first, after in (*found.reads, *found.writes))
    data_dependencies([found, found])


@pytest.mark.slow
def test_a_recorded_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ExecutionTraceObserver

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    observer = ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "host.json"))
    observer.start()
    y = x.mm(w)
    other = x.neg()  # nothing to do with y
    y[:4].mul_(2)
    y[4:].add_(other[:4])
    y.t().relu()
    x.zero_()
    observer.stop()
    observer.unregister_callback()
    ops = {}
    for node in json.loads((tmp_path / "host.json").read_text())["nodes"]:
        name, kernels = (
            node["name"],
            ("aten::mm", "aten::neg", "aten::mul_", "aten::add_", "aten::relu", "aten::zero_"),
        )
        if name in kernels:
            schema = next(a["value"] for a in node["attrs"] if a["name"] == "op_schema")
            sides = [Arguments(**node[side]) for side in ("inputs", "outputs")]
            ops[name.removeprefix("aten::")] = access(schema, sides[0], sides[1])
    found = {
        name: {list(ops)[at] for at in before}
        for name, before in zip(ops, data_dependencies(list(ops.values())), strict=True)
    }
    assert found == {
        "mm": set(),
        "neg": set(),
        "mul_": {"mm"},
        "add_": {"mm", "neg"},
        "relu": {"mul_", "add_"},
        "zero_": {"mm", "neg"},
    }
