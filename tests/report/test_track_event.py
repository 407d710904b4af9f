"""Perfetto's own format, decoded by a reader of protobuf in the test and held against JSON of the same timeline."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report import track_event, write_perfetto


def fields(raw):
    """Return the fields of a message: number -> values; numbers as int, doubles as float, the rest as bytes."""
    found, at = defaultdict(list), 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = raw[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            found[key >> 3].append(varint())
        elif key & 7 == 1:
            found[key >> 3].append(struct.unpack_from("<d", raw, at)[0])
            at += 8
        else:
            assert key & 7 == 2
            size = varint()
            assert at + size <= len(raw)
            found[key >> 3].append(bytes(raw[at : at + size]))
            at += size
    return found


def packets(path):
    raw = path.read_bytes()
    for packet in fields(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)[1]:
        found = fields(packet)
        if 50 in found:
            yield from map(fields, fields(zlib.decompress(found[50][0]))[1])
        else:
            yield found


def text(message, field):
    return fields(message)[field][0].decode()


def drawn(path):
    """Return (process names, their labels, threads: slices in order, counters: values in order) of a file."""
    processes, labels, tracks, names, open_ = {}, {}, {}, {}, {}
    for packet in packets(path):
        (sequence,) = packet[10]
        if 60 in packet:
            about = fields(packet[60][0])
            (uuid,) = about[1]
            assert uuid == sequence and uuid not in tracks
            if 3 in about:
                own = fields(about[3][0])
                processes[uuid] = own[6][0].decode()
                labels[processes[uuid]] = [label.decode() for label in own[8]]
                continue
            name = about[2][0].decode() if 8 in about else text(about[4][0], 5)
            tracks[uuid] = (processes[about[5][0]], name, [])
            assert packet[13] == [1] and fields(fields(packet[59][0])[11][0])[11] == [uuid]
            interned = fields(packet[12][0]) if 12 in packet else {}
            names[uuid] = {
                kind: {fields(each)[1][0]: text(each, 2) for each in interned.get(kind, ())}
                for kind in (1, 2, 3, 29)
            }
            continue
        event, (at,) = fields(packet[11][0]), packet[8]
        known, found = names[sequence], tracks[sequence][2]
        if event[9] == [1]:
            args = {}
            for each in map(fields, event[4]):
                args[known[3][each[1][0]]] = each[3][0] if 3 in each else known[29][each[17][0]]
            assert sequence not in open_ and packet[13] == [2]
            open_[sequence] = (at, known[2][event[10][0]], known[1][event[3][0]], args)
        elif event[9] == [2]:
            start, *rest = open_.pop(sequence)
            assert not found or found[-1][1] <= start <= at
            found.append((start, at, *rest))
        else:
            assert event[9] == [4]
            found.append((at, event[30][0] if 30 in event else event[44][0]))
    assert not open_
    return list(processes.values()), labels, list(tracks.values())


def of_json(path):
    """Return the same of a file of Chrome trace events, without labels."""
    processes, threads, tracks = {}, {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        pid, key = event["pid"], (event["pid"], event["tid"])
        if event["name"] == "process_name":
            processes[pid] = event["args"]["name"]
        elif event["name"] == "thread_name":
            threads[key] = event["args"]["name"]
        elif event["ph"] == "X":
            begin, length = (round(event[name] * 1000) for name in ("ts", "dur"))
            _, _, rows = tracks.setdefault(key, (processes[pid], threads[key], []))
            rows.append((begin, begin + length, event["name"], event["cat"], event["args"]))
        elif event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            name = f"{event['name']} {unit}"
            _, _, rows = tracks.setdefault((pid, name), (processes[pid], name, []))
            rows.append((round(event["ts"] * 1000), value))
    return list(processes.values()), list(tracks.values())


@pytest.mark.parametrize("ending", [".pftrace", ".perfetto-trace", ".pftrace.gz"])
def test_both_formats_have_the_same(timeline, tmp_path, ending):
    write_perfetto(timeline, tmp_path / "t.json")
    write_perfetto(timeline, tmp_path / f"t{ending}")
    processes, labels, tracks = drawn(tmp_path / f"t{ending}")
    assert (processes, tracks) == of_json(tmp_path / "t.json")
    assert labels["rank 0 (+2 alike)"] == ["stands for ranks 0-2"]
    assert labels["rank 7"] == []


def test_a_class_names_the_ranks_that_it_stands_for(build, tmp_path):
    node = {"nodes": [{"kind": "compute", "start": 0, "end": 1}]}
    made = build([node, node], rank_class=[rank % 2 for rank in range(40)])
    write_perfetto(made, tmp_path / "t.pftrace")
    (note,) = drawn(tmp_path / "t.pftrace")[1]["rank 1 (+19 alike)"]
    assert note == "stands for ranks 1, 3, 5, 7, 9, 11, 13, 15, …"


spans = st.tuples(st.integers(0, 1 << 40), st.integers(0, 9))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["compute", "recv", "cpu"]), st.text(max_size=4), st.text(max_size=3),
                          st.integers(0, 1 << 62), spans), max_size=12),
       st.lists(st.tuples(st.sampled_from([-1, 0, 1]), st.integers(0, 300), spans), max_size=12))  # fmt: skip
def test_any_timeline(build, tmp_path_factory, nodes, phases):
    made = build([{
        "nodes": [{"kind": "collective", "start": 0, "end": 50}]
        + [{"kind": kind, "name": name, "label": label, "size": size, "start": start, "end": start + n}
           for kind, name, label, size, (start, n) in nodes],
        "phases": [(0, chunk, 0, dim, "all-reduce", at, at + n + 1, 1) for dim, chunk, (at, n) in phases],
    }])  # fmt: skip
    folder = tmp_path_factory.mktemp("any")
    write_perfetto(made, folder / "t.json")
    write_perfetto(made, folder / "t.pftrace")
    processes, _, tracks = drawn(folder / "t.pftrace")
    # JSON keeps large numbers of nodes as text.
    assert (processes, tracks) == of_json(folder / "t.json")


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9))
def test_numbers(values):
    encoded = track_event._rows([track_event._column(3, np.array(values, np.uint64))])
    assert fields(encoded)[3] == values


def test_the_same_timeline_gives_the_same_bytes(timeline, tmp_path):
    for name in ("a.pftrace", "b.pftrace", "a.pftrace.gz", "b.pftrace.gz"):
        write_perfetto(timeline, tmp_path / name)
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()
    assert (tmp_path / "a.pftrace.gz").read_bytes() == (tmp_path / "b.pftrace.gz").read_bytes()
