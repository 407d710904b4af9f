"""Codes of texts."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from armillary.trace import Graph, Node, graph_of
from armillary.trace import columns as c

NAMES = st.lists(st.text("ab1240é.", max_size=6), max_size=40)


def strings(names: list[str]) -> tuple[Graph, c.I64]:
    graph = graph_of([Node(i, name) for i, name in enumerate(names)])
    return graph, graph.columns.rows[c.NAME_AT, graph.first : graph.first + graph.n_nodes]


@given(NAMES)
def test_the_kernel_and_the_dictionary_agree(names: list[str]) -> None:
    graph, which = strings(names)
    found = [c.intern(graph.columns, which, mode) for mode in ("compiled", "interpreted")]
    index: dict[str, int] = {}
    wanted = [index.setdefault(name, len(index)) for name in names]
    for codes, first in found:
        assert codes.tolist() == wanted
        assert [raw.decode() for raw in graph.columns.raws(first)] == list(index)


@given(NAMES)
def test_numbers_are_folded_the_same_way_for_few_and_for_many(names: list[str]) -> None:
    graph, which = strings(names)
    before = c.COMPILED_FROM
    found = []
    for c.COMPILED_FROM in (0, before):
        codes, texts = c.fold_numbers(graph.columns, which)
        found.append([texts[code] for code in codes.tolist()])
        assert len(set(texts)) == len(texts)
    assert found[0] == found[1] == [re.sub("[0-9]+", "#", name) for name in names]


def test_many_texts_are_told_apart() -> None:
    names = [f"layer.{i % 3000}.mlp" for i in range(70_000)]
    graph, which = strings(names)
    codes, first = c.intern(graph.columns, which)
    assert len(first) == 3000
    assert np.array_equal(codes, np.arange(70_000) % 3000)
    assert c.fold_numbers(graph.columns, which)[1] == ["layer.#.mlp"]
