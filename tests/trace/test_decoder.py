"""The decoder against the protobuf runtime, on made-up, odd and broken input, in both modes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import Graph, Node, _decode, decode, encode, graph_of, nodes_of
from armillary.trace.columns import KINDS, RANGES, RAW, STRING

TEXT = st.text(max_size=6) | st.sampled_from(["", "comm_size", "é", "漢字", "🜨", "involved_dim"])
UINT64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 127, 128, 2**63, 2**64 - 1])
CHECKS = settings(max_examples=150, deadline=None)


def scalars(kind: int) -> st.SearchStrategy[Any]:
    name = next(name for name, number in KINDS.items() if number == kind)
    if name == "bool":
        return st.booleans()
    if kind in RANGES:
        low, high = RANGES[kind]
        return st.integers(low, high) | st.sampled_from([low, high, max(low, -1), 0])
    if name in ("double", "float"):
        return st.floats(width=64 if name == "double" else 32)
    return TEXT if name == "string" else st.binary(max_size=6)


def values(kind: int) -> st.SearchStrategy[Any]:
    if kind == 0:
        return st.none()
    return scalars(kind) if kind & 1 else st.lists(scalars(kind - 1), max_size=4)


@st.composite
def attributes(draw: st.DrawFn) -> tuple[Any, ...]:
    # Fields of newer schemas are no attributes: tests/trace/test_storage.py.
    name, kind = draw(st.sampled_from(sorted((name, kind) for name, kind in KINDS.items() if kind != RAW)))
    doc = draw(st.sampled_from(["", "", "", "says what"]))
    return (draw(TEXT), name, draw(values(kind)), *([doc] if doc else []))


IO = st.none() | st.tuples(TEXT, TEXT, TEXT)
NODES = st.builds(
    Node,
    id=UINT64,
    name=TEXT,
    type=st.integers(0, 7) | st.integers(-(2**31), 2**31 - 1),
    ctrl_deps=st.lists(UINT64, max_size=3),
    data_deps=st.lists(UINT64, max_size=3),
    start_micros=UINT64,
    duration_micros=UINT64,
    inputs=IO,
    outputs=IO,
    attrs=st.lists(attributes(), max_size=4),
)
GRAPHS = st.builds(
    graph_of, st.lists(NODES, max_size=4), version=TEXT, metadata=st.lists(attributes(), max_size=2)
)


def assert_columns_equal(left: Graph, right: Graph) -> None:
    for field in dataclasses.fields(left.columns):
        one, other = getattr(left.columns, field.name), getattr(right.columns, field.name)
        if isinstance(one, list):
            assert one == other
        else:
            assert one.dtype == other.dtype
            assert np.array_equal(one, other), field.name


def outcome(data: bytes, mode: Any) -> Graph | str:
    try:
        return decode(data, "x.et", mode)
    except InputError as error:
        return str(error)


@CHECKS
@given(GRAPHS)
def test_round_trip_of_everything_a_node_can_hold(chakra: SimpleNamespace, graph: Graph) -> None:
    data = encode(graph, "interpreted")
    assert encode(graph, "compiled") == data
    again = decode(data, "x.et", "interpreted")
    assert_columns_equal(again, decode(data, "x.et", "compiled"))
    assert encode(again) == data
    assert repr(nodes_of(again)) == repr(nodes_of(graph))
    messages = chakra.parse(data)
    chakra.assert_same(again, messages)
    # protobuf's own encoding is the same, but for defaults that we never write either
    assert b"".join(chakra.frame(m.SerializeToString(deterministic=True)) for m in messages) == data


@CHECKS
@given(
    GRAPHS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 2)), min_size=1)
)
def test_mutated_bytes_are_read_like_protobuf_or_refused(
    chakra: SimpleNamespace, graph: Graph, edits: list[tuple[int, int, int]]
) -> None:
    data = bytearray(encode(graph))
    for at, byte, how in edits:
        at %= len(data) + 1
        data[at : at + (how < 2)] = bytes([byte]) if how else b""
    found = outcome(bytes(data), "interpreted")
    again = outcome(bytes(data), "compiled")
    if isinstance(found, str):
        assert found == again
        assert "x.et" in found
    else:
        assert isinstance(again, Graph)
        assert_columns_equal(found, again)
        chakra.assert_same(found, chakra.parse(bytes(data)))


@given(st.binary(max_size=200))
@CHECKS
def test_any_bytes_are_read_like_protobuf_or_refused(chakra: SimpleNamespace, data: bytes) -> None:
    found = outcome(data, "interpreted")
    if isinstance(found, Graph):
        chakra.assert_same(found, chakra.parse(data))


@CHECKS
@given(st.data())
def test_fields_in_any_order_and_unpacked(chakra: SimpleNamespace, data: st.DataObject) -> None:
    """Valid but not canonical: shuffled, repeated and unknown fields, lists item by item."""
    v, frame = chakra.varint, chakra.frame
    fields = [
        v(1 << 3) + v(data.draw(UINT64)),
        v(1 << 3) + v(data.draw(UINT64)),
        v(2 << 3 | 2) + frame(b"first"),
        v(2 << 3 | 2) + frame(b"last"),
        v(4 << 3) + v(data.draw(UINT64)),
        v(4 << 3 | 2) + frame(v(3) + v(4)),
        v(5 << 3) + v(7),
        v(8 << 3 | 2) + frame(v(1 << 3 | 2) + frame(b"in")),
        v(8 << 3 | 2) + frame(v(3 << 3 | 2) + frame(b"types")),
        v(99 << 3 | 2) + frame(b"unknown"),
        v(98 << 3 | 5) + b"1234",
        v(3 << 3 | 1) + b"12345678",  # a known field of another wire type is unknown
    ]
    members = [
        v(1 << 3 | 2) + frame(b"old"),
        v(1 << 3 | 2) + frame(b"name"),
        v(2 << 3 | 2) + frame(b"doc"),
        v(28 << 3 | 2) + frame(v(8) + v(1) + v(8) + v(0)),
        v(28 << 3 | 2) + frame(v(10) + frame(v(1) + v(5))),
        v(10 << 3 | 2) + frame(v(10) + frame(v(2**64 - 1) + v(3))),
        v(30 << 3 | 2) + frame(v(10) + frame(b"text")),
        v(29 << 3 | 2) + frame("é".encode()),
        v(7 << 3) + v(2**64 - 5),
        v(4 << 3 | 2) + frame(v(9) + bytes(8)),
        v(77 << 3) + v(1),
    ]
    for _ in range(2):
        chosen = data.draw(st.lists(st.sampled_from(members), max_size=6))
        fields.append(v(10 << 3 | 2) + frame(b"".join(chosen)))
    node = b"".join(data.draw(st.permutations(fields))[: data.draw(st.integers(0, len(fields)))])
    file = frame(b"") + frame(node)
    for mode in ("interpreted", "compiled"):
        chakra.assert_same(decode(file, "x.et", mode), chakra.parse(file))


def test_an_empty_first_frame_is_an_empty_metadata(chakra: SimpleNamespace) -> None:
    graph = decode(b"\x00" + chakra.frame(chakra.Node(id=3).SerializeToString()))
    assert (graph.version, graph.metadata, graph.ids.tolist()) == ("", [], [3])


def test_files_decoded_together_are_like_files_decoded_alone(chakra: SimpleNamespace) -> None:
    from armillary.trace._decode import decode_many

    graphs = [
        graph_of(
            [
                Node(
                    9 + r,
                    "n",
                    4,
                    (),
                    [9],
                    0,
                    r,
                    ("a", "", "b"),
                    None,
                    [("x", "string_list", ["p", str(r)], "d")],
                )
            ],
            version=str(r),
        )
        for r in range(5)
    ]
    files = [encode(graph) for graph in graphs]
    for mode in ("interpreted", "compiled"):
        for graph, data, r in zip(decode_many(files, list("abcde"), mode), files, range(5), strict=True):
            assert encode(graph) == data
            chakra.assert_same(graph, chakra.parse(data))
            assert graph.source == "abcde"[r]
            assert graph.dangling == ([(0, 9)] if r else [])


V = bytes
BROKEN = {
    "empty": (b"", "the file is empty"),
    "frame longer than the file": (b"\x05\x0a", "byte 0 of 2, in the GlobalMetadata: the length"),
    "cut in a varint": (b"\x00\x80", "byte 1 of 2, in node message 0: expected more bytes"),
    "text file": (b"hello, this is not a trace at all", "not a Chakra ET file"),
    "html": (b"<!DOCTYPE html><html></html>" * 9, "not a Chakra ET file"),
    "varint too long": (b"\x00" + b"\xff" * 11, "expected a varint of at most 64 bits"),
    "wire type 3": (b"\x00\x01\x0b", "wire type 0, 1, 2 or 5"),
    "field number 0": (b"\x00\x02\x00\x00", "field number from 1"),
    "field number too large": (b"\x00\x06\x80\x80\x80\x80\x10\x00", "field number from 1"),
    "length past its frame": (b"\x00\x02\x12\x05", "runs past the end"),
    "huge length": (b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "runs past the end"),
    "name not UTF-8": (b"\x00\x04\x12\x02\xc3\x28", "UTF-8"),
    "surrogate": (b"\x00\x05\x12\x03\xed\xa0\x80", "UTF-8"),
    "attribute name not UTF-8": (b"\x00\x05\x52\x03\x0a\x01\xff", "UTF-8"),
    "cut fixed64": (b"\x00\x06\x52\x04\x19\x01\x02\x03", "expected more bytes"),
    "old schema": (b"\x08\x08\x01\x12\x01a\x18\x03\x20\x00", "before schema 0.0.4"),
    "old schema, id 0 left out": (b"\x08\x12\x04comp\x18\x03", "before schema 0.0.4"),
}


@pytest.mark.parametrize("mode", ["interpreted", "compiled"])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_with_the_place(case: str, mode: Any) -> None:
    data, message = BROKEN[case]
    with pytest.raises(InputError, match=message) as caught:
        decode(data, "dir/w.3.et", mode)
    assert str(caught.value).startswith("dir/w.3.et: ")


@pytest.mark.shared
def test_the_one_file_of_the_first_schema_is_named_as_such(shared: Any) -> None:
    for path in sorted((shared / "traces").rglob("*.eg")):
        with pytest.raises(InputError, match=r"before schema 0\.0\.4"):
            decode(path.read_bytes(), path.name)


def test_every_cut_of_a_file_is_refused_or_whole_frames(chakra: SimpleNamespace) -> None:
    nodes = [
        Node(i, f"n{i}", 4, (), [0], 1, 2, ("a", "b", "c"), None, [("s", "string", "x")]) for i in range(3)
    ]
    data = encode(graph_of(nodes))
    whole = 0
    for cut in range(1, len(data)):
        found = outcome(data[:cut], "interpreted")
        if isinstance(found, Graph):
            whole += 1
            chakra.assert_same(found, chakra.parse(data[:cut]))
    assert whole == 3


def test_protobuf_refuses_what_we_refuse_as_text(chakra: SimpleNamespace) -> None:
    assert KINDS["string"] == STRING
    with pytest.raises(DecodeError):
        chakra.parse(BROKEN["surrogate"][0])


def outcome_of(
    files: list[bytes], mode: Any, once_from: int, monkeypatch: pytest.MonkeyPatch
) -> list[Graph] | str:
    monkeypatch.setattr(_decode, "ONCE_FROM", once_from)
    try:
        return _decode.decode_many(files, [f"{i}.et" for i in range(len(files))], mode)
    except InputError as error:
        return str(error)


def repeated(graph: Graph, times: int) -> bytes:
    """Return the file of a graph with its nodes several times."""
    data = encode(graph)
    size, at, shift = 0, 0, 0
    while True:
        size |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            break
    return data[: at + size] + data[at + size :] * times


FILES = st.lists(st.builds(repeated, GRAPHS, st.sampled_from([1, 200, 300])), min_size=1, max_size=3)
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2)


@settings(max_examples=60, deadline=None)
@given(
    FILES,
    EDITS,
    st.sampled_from([0, 1 << 12, 1 << 13, 1 << 16]),
    st.sampled_from([1, 4, 1 << 16]),
    st.sampled_from(["compiled", "compiled", "interpreted"]),
)
def test_one_pass_finds_what_two_find(
    files: list[bytes], edits: list[tuple[int, int]], spare: int, names: int, mode: str
) -> None:
    made = [bytearray(data) for data in files]
    for at, byte in edits:
        made[at % len(made)][at % len(made[at % len(made)])] = byte
    data = [bytes(each) for each in made]
    if mode == "interpreted":
        data = [each[:3000] for each in data]
    with pytest.MonkeyPatch.context() as monkeypatch:
        # Too little to spare: the pass gives up, and two passes follow.
        monkeypatch.setattr(_decode, "_SPARE", spare)
        monkeypatch.setattr(_decode, "_NAMES", names)
        two, one = (outcome_of(data, mode, at, monkeypatch) for at in (1 << 60, 0))
    if isinstance(two, str):
        assert one == two
    else:
        assert_columns_equal(two[0], one[0])


def test_frames_of_another_kind_at_the_end_end_in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a file do not tell of one large node; nothing is written beyond a column."""
    small = [Node(id=i, name="n", type=4) for i in range(3000)]
    large = Node(id=3000, name="x" * 500_000, type=4, data_deps=list(range(3000)) * 40)
    data = encode(graph_of([*small, large]))
    two, one = (outcome_of([data], "compiled", at, monkeypatch) for at in (1 << 60, 0))
    assert_columns_equal(two[0], one[0])
