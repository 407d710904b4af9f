"""Storage and checkpoint nodes, and fields of newer schemas: kept byte for byte, and timed by a machine's storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.platform.model import Platform, Storage
from armillary.platform.network import Dimension
from armillary.trace import (
    GraphBuilder,
    Trace,
    check,
    decode,
    encode,
    graph_from_json,
    graph_of,
    graph_to_json,
    load_trace,
    nodes_of,
    write_trace,
)
from armillary.trace.node import Node
from armillary.trace.storage import Storage as Operation
from armillary.trace.storage import storage_nodes, storage_of

GIB = 1 << 30
# By hand after pull request 216: level FS, and a pwrite of 4 KiB at offset 8 of file descriptor 3.
PWRITE = bytes.fromhex("5a0d 0801 52 09 0806 1803 2008 288020".replace(" ", ""))
BLOCK = bytes.fromhex("5a0a 0803 62 06 0801 2007 2808".replace(" ", ""))
PAGES = bytes.fromhex("5a08 0802 5a 04 0803 2002".replace(" ", ""))


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def newer() -> st.SearchStrategy[bytes]:
    """Return fields of a node that this schema does not have."""
    number = st.integers(11, 2**29 - 1)
    text = st.tuples(number, st.binary(max_size=20)).map(
        lambda pair: varint(pair[0] << 3 | 2) + varint(len(pair[1])) + pair[1]
    )
    whole = st.tuples(number, st.integers(0, 2**64 - 1)).map(
        lambda pair: varint(pair[0] << 3) + varint(pair[1])
    )
    fixed = st.tuples(number, st.binary(min_size=8, max_size=8)).map(
        lambda pair: varint(pair[0] << 3 | 1) + pair[1]
    )
    return st.one_of(text, whole, fixed)


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.lists(newer(), max_size=3)), max_size=4), st.booleans()
)
def test_types_and_fields_of_newer_schemas_stay_byte_for_byte(
    nodes: list[tuple[int, list[bytes]]], compiled: bool
) -> None:
    # The file by hand: an empty GlobalMetadata, then nodes with an id, a type, and what is not known.
    data = b"\x00"
    for ident, (kind, fields) in enumerate(nodes, 1):
        frame = b"\x08" + varint(ident) + (b"\x18" + varint(kind) if kind else b"") + b"".join(fields)
        data += varint(len(frame)) + frame
    graph = decode(data, "x", "compiled" if compiled else "interpreted")
    assert encode(graph) == data
    assert encode(graph_of(nodes_of(graph), "x", "")) == data
    assert encode(graph_from_json(graph_to_json(graph))) == data
    assert graph.unknown_fields == 0


@pytest.mark.parametrize(
    ("field", "operation"),
    [
        (PWRITE, Operation("fs", "pwrite", 4096)),
        (BLOCK, Operation("block", "read", 8 * 512)),
        (PAGES, Operation("page", "readahead_sync", 2 * 4096)),
        (b"\x5a\x00", Operation()),
        (b"\x5a\x03\x08\x01\x52", Operation("fs")),  # cut off inside
        (b"\x62\x00", None),
    ],
)
def test_operations(field: bytes, operation: Operation | None) -> None:
    graph = graph_of([Node(id=1, type=8, attrs=[("", "field", field)])])
    assert storage_of(graph, 0) == operation


def test_pages_and_paths_of_a_builder() -> None:
    builder = GraphBuilder()
    builder.storage("open", 0, "open", path="data")
    builder.storage("batch", "64 KiB", after=[0])
    builder.checkpoint("step", GIB, path="ckpt/é", after=[1])
    graph = decode(encode(builder.graph()))
    at, sizes, known = storage_nodes(graph)
    assert at.tolist() == [0, 1, 2] and sizes.tolist() == [0, 65536, GIB] and known.all()
    assert "ckpt/é".encode() in encode(graph)
    with pytest.raises(InputError, match="did you mean 'pread'"):
        builder.storage("x", 1, "prad")


def platform(storage: Storage | None, npus: int = 8) -> Platform:
    return Platform((Dimension("a", "Ring", npus, 50.0, 500.0),), storage=storage)


def trace(npus: int = 8, **recorded: Any) -> Trace:
    builder = GraphBuilder()
    read = builder.storage("batch", GIB)
    work = builder.compute("work", duration_micros=1000, after=[read])
    builder.checkpoint("checkpoint", 2 * GIB, after=[work])
    graph = builder.graph()
    if recorded:
        nodes = nodes_of(graph)
        nodes[0].duration_micros = recorded["micros"]
        graph = graph_of(nodes)
    return Trace.replicate(graph, ranks=npus)


@pytest.mark.parametrize("profile", ["physical", "astra-sim"])
@pytest.mark.parametrize(
    ("storage", "rate"),
    [
        (Storage(64.0, 1000.0), 8.0),
        (Storage(64.0, 1000.0, readers=2), 32.0),
        (Storage(64.0, 1000.0, readers=2, client=16.0), 16.0),
        (Storage(64.0, 1000.0, readers=100), 8.0),
    ],
)
def test_time_of_storage(profile: str, storage: Storage, rate: float) -> None:
    found = armillary.simulate(trace(), platform(storage), profile=profile)
    assert found.total_ticks == 2 * 1000 + 3 * GIB / rate + 1_000_000
    assert any("NPUs use it at a time" in text for text in found.info["assumptions"])


def test_without_storage_times_are_recorded_or_missing() -> None:
    found = armillary.simulate(trace(), platform(None))
    assert found.total_ticks == 1_000_000
    assert any("expected platform.storage" in text for text in found.info["warnings"])
    assert armillary.simulate(trace(micros=70), platform(None)).total_ticks == 1_070_000


def test_studies_name_a_storage(tmp_path: Path) -> None:
    write_trace(tmp_path / "w", trace())
    study = tmp_path / "study.yaml"
    text = (
        "workload: {{trace: w}}\nplatform:\n  network: [{{name: a, topology: Ring, size: 8, bandwidth: 50 GB/s, "
        "latency: 1 us}}]\n  storage: {{{}}}\n"
    )
    study.write_text(text.format("bandwidth: 64 GB/s, latency: 1 us, readers: 2, client: 16 GB/s"))
    assert (
        armillary.simulate(load_trace(tmp_path / "w"), study).total_ticks == 2000 + 3 * GIB // 16 + 1_000_000
    )
    for wrong, words in (("latency: 1 us", "bandwidth"), ("bandwidth: 1 GB/s, readers: 0", "readers")):
        study.write_text(text.format(wrong))
        with pytest.raises(InputError, match=words):
            armillary.simulate(load_trace(tmp_path / "w"), study)


def test_what_is_ignored_is_named() -> None:
    other = graph_of([Node(id=1, type=4, attrs=[("is_cpu_op", "bool", False), ("", "field", b"\x62\x00")])])
    assert any("newer schema: they are kept" in each.message for each in check(other))
    assert not [each for each in check(trace().graphs[0]) if "newer" in each.message]


@pytest.mark.parametrize(
    "attribute",
    [("name", "field", PWRITE), ("", "field", b"\x08\x01"), ("", "field", PWRITE[:-1]), ("", "field", "x")],
)
def test_only_whole_newer_fields_are_taken(attribute: Any) -> None:
    with pytest.raises(InputError, match="expected a value of that kind"):
        graph_of([Node(id=1, attrs=[attribute])])


def test_global_metadata_has_no_such_fields() -> None:
    with pytest.raises(InputError, match="which only nodes have"):
        graph_of([], metadata=[("", "field", PWRITE)])
