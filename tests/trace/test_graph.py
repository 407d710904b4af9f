"""Columns of a graph: dependencies as positions, attributes converted and checked."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import Graph, Node, graph_of
from armillary.trace.columns import KINDS


def attrs(*lists: list[tuple[Any, ...]]) -> Graph:
    return graph_of([Node(id=7 + i, name=f"n{i}", attrs=found) for i, found in enumerate(lists)], "w.3.et")


IDS = st.lists(st.integers(0, 30), unique=True, max_size=8) | st.lists(
    st.integers(2**64 - 40, 2**64 - 1), unique=True, max_size=8
)


@given(IDS.flatmap(lambda ids: st.tuples(st.just(ids), st.integers(0, 2**32))))
def test_parents_are_those_a_dictionary_finds(case: tuple[list[int], int]) -> None:
    ids, seed = case
    rng = random.Random(seed)
    candidates = [*ids, 31, 2**63]
    nodes = [
        Node(i, ctrl_deps=rng.choices(candidates, k=2), data_deps=rng.choices(candidates, k=3)) for i in ids
    ]
    graph = graph_of(nodes)
    ptr, parent = graph.parents()
    assert parent.dtype == np.int32
    where = {ident: at for at, ident in enumerate(ids)}
    dangling = set()
    for at, node in enumerate(nodes):
        deps = {*node.ctrl_deps, *node.data_deps}
        assert parent[ptr[at] : ptr[at + 1]].tolist() == sorted(where[dep] for dep in deps if dep in where)
        dangling |= {(at, dep) for dep in deps if dep not in where}
    assert graph.dangling == sorted(dangling)


def test_parents_of_contiguous_and_shuffled_ids_agree() -> None:
    nodes = [Node(5 + i, data_deps=[4 + i], ctrl_deps=[5 + i // 2] if i else []) for i in range(20)]
    ptr, parent = graph_of(nodes).parents()
    assert parent[ptr[6] : ptr[7]].tolist() == [3, 5]
    ptr, parent = graph_of(nodes[::-1]).parents()
    assert parent[ptr[13] : ptr[14]].tolist() == [14, 16]


@pytest.mark.parametrize("kind", [k for k, n in KINDS.items() if 7 <= n <= 27 and n & 1 and k != "bool"])
def test_every_integer_kind_is_an_int_and_a_float(kind: str) -> None:
    graph = attrs([("x", kind, 5)], [], [("y", kind, 9), ("x", kind, 6)])
    assert graph.ints("x", -1).tolist() == [5, -1, 6]
    assert graph.floats("x", 0.5).tolist() == [5.0, 0.5, 6.0]
    assert graph.has("x").tolist() == [True, False, True]
    assert graph.has("z").tolist() == [False] * 3


def test_numbers_keep_their_values() -> None:
    graph = attrs(
        [("f", "double", math.nan), ("b", "bool", True)],
        [("f", "float", math.inf), ("b", "int32", -3)],
        [("f", "uint64", 2**63), ("b", "sint64", -(2**63))],
    )
    assert graph.ints("b").tolist() == [1, -3, -(2**63)]
    values = graph.floats("f").tolist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 2.0**63]


def test_strings_and_lists_are_coded() -> None:
    graph = attrs(
        [("pg_name", "string", "1"), ("involved_dim", "bool_list", [True, False])],
        [],
        [("pg_name", "string", ""), ("involved_dim", "bool_list", [])],
        [("pg_name", "string", "1"), ("involved_dim", "bool_list", [True, False])],
    )
    codes, names = graph.strings("pg_name")
    assert (codes.tolist(), names) == ([0, -1, 1, 0], ["1", ""])
    masks, lists = graph.bool_lists("involved_dim")
    assert (masks.tolist(), lists) == ([0, -1, 1, 0], [(True, False), ()])


def test_the_last_of_two_attributes_of_one_name_wins() -> None:
    graph = attrs([("x", "int64", 1), ("x", "int64", 2)])
    assert graph.ints("x").tolist() == [2]


WRONG: dict[str, tuple[tuple[str, str, Any], Callable[[Graph], object], str]] = {
    "float as int": (("x", "double", 1.0), lambda g: g.ints("x"), "of kind double, expected an integer"),
    "string as int": (("x", "string", "1"), lambda g: g.ints("x"), "of kind string, expected an integer"),
    "list as int": (
        ("x", "int64_list", [1]),
        lambda g: g.ints("x"),
        "of kind int64_list, expected an integer",
    ),
    "unset as int": (("x", "unset", None), lambda g: g.ints("x"), "of kind unset, expected an integer"),
    "too large": (("x", "uint64", 2**63), lambda g: g.ints("x"), "is 9223372036854775808, expected at most"),
    "too large fixed": (("x", "fixed64", 2**64 - 1), lambda g: g.ints("x"), "is 18446744073709551615, exp"),
    "string as float": (("x", "string", "1"), lambda g: g.floats("x"), "of kind string, expected a number"),
    "int as string": (("x", "int32", 1), lambda g: g.strings("x"), "of kind int32, expected string"),
    "bytes as string": (("x", "bytes", b"1"), lambda g: g.strings("x"), "of kind bytes, expected string"),
    "int list as bool list": (("x", "int32_list", [1]), lambda g: g.bool_lists("x"), "expected bool_list"),
    "bool as bool list": (
        ("x", "bool", True),
        lambda g: g.bool_lists("x"),
        "of kind bool, expected bool_list",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_attribute_of_the_wrong_kind_is_named(case: str) -> None:
    attribute, read, message = WRONG[case]
    with pytest.raises(InputError, match=message) as caught:
        read(attrs([], [attribute]))
    assert str(caught.value).startswith("w.3.et: node 8 'n1': attribute 'x' ")


BAD_NODES: dict[str, tuple[Node, str]] = {
    "negative id": (Node(-1), "id is -1, expected an integer from 0"),
    "id of 2**64": (Node(2**64), "id is 18446744073709551616"),
    "duration": (Node(duration_micros=1.5), "duration_micros is 1.5"),  # type: ignore[arg-type]
    "dep": (Node(data_deps=["a"]), "data_deps is 'a'"),  # type: ignore[list-item]
    "type": (Node(type=2**31), "type is 2147483648"),
    "name": (Node(name=3), "name is 3, expected text"),  # type: ignore[arg-type]
    "surrogate": (Node(name="\ud800"), "expected text that UTF-8 can encode"),
    "kind": (Node(attrs=[("x", "int46", 1)]), r"kind 'int46', expected one of .*did you mean 'int64'"),
    "range": (Node(attrs=[("x", "int32", 2**31)]), r"'x' \(int32\) is 2147483648, expected an integer from"),
    "bool as int": (Node(attrs=[("x", "int64", True)]), r"'x' \(int64\) is True"),
    "int as bool": (Node(attrs=[("x", "bool", 1)]), r"'x' \(bool\) is 1, expected a value of that kind"),
    "no list": (Node(attrs=[("x", "bool_list", True)]), r"is True, expected a list"),
    "item": (Node(attrs=[("x", "uint32_list", [1, -1])]), r"\(uint32\) is -1"),
    "float range": (Node(attrs=[("x", "float", 1e300)]), r"\(float\) is 1e\+300"),
    "text": (Node(attrs=[("x", "string", b"a")]), r"\(string\) is b'a'"),
}


@pytest.mark.parametrize("case", BAD_NODES)
def test_a_value_that_does_not_fit_is_named(case: str) -> None:
    node, message = BAD_NODES[case]
    with pytest.raises(InputError, match=message) as caught:
        graph_of([node], "mine")
    assert str(caught.value).startswith("mine: node ")
