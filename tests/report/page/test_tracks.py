"""The packed timeline of pages: unpacked again, it is the run, and it stays small."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from armillary.engine.common.timeline import Timeline
from armillary.report.page.tracks import LANES_SHOWN, MOST_TEXT, tracks, tracks_beside

Build = Callable[..., Timeline]
Slice = tuple[int, int, str, int, bool]


def unpacked(block: dict[str, Any]) -> dict[str, list[Slice]]:
    """Return (start, end, name, how many it stands for, on the critical path) of each track, as the page reads them."""
    data = zlib.decompress(base64.b64decode(block["data"]))
    names = [row.split("\t")[0] for row in data[: block["text_bytes"]].decode().split("\n")]
    total, at, columns = sum(count for _, _, count in block["tracks"]), block["text_bytes"], {}
    for name in ("gap", "length", "what", "count", "lit"):
        planes = np.frombuffer(data, np.uint8, total * block["widths"][name], at).reshape(-1, total)
        columns[name] = sum(plane.astype(np.int64) << (8 * i) for i, plane in enumerate(planes))
        at += planes.size
    assert at == len(data)
    found: dict[str, list[Slice]] = {}
    first = 0
    for title, _, count in block["tracks"]:
        mine = slice(first, first + count)
        end = np.cumsum(columns["gap"][mine] + columns["length"][mine])
        start = end - columns["length"][mine]
        found.setdefault(title, []).extend(
            (int(a), int(b), names[what], int(many), bool(lit))
            for a, b, what, many, lit in zip(
                start, end, columns["what"][mine], columns["count"][mine], columns["lit"][mine], strict=True
            )
        )
        first += count
    return found


def test_every_slice_is_there_with_its_name_and_its_place(build: Build) -> None:
    run = build(
        [
            {
                "nodes": [
                    {"kind": "compute", "name": "one", "start": 0, "end": 10},
                    {"kind": "collective", "name": "sum", "start": 10, "end": 30, "parents": [0]},
                    {"kind": "compute", "name": "two\t<b>\n", "start": 12, "end": 20},
                ],
                "phases": [(1, 0, 0, 0, "all-reduce", 10, 20, 64), (1, 1, 0, 0, "all-reduce", 15, 30, 64)],
            }
        ],
        rank_class=[0, 0, 0],
        dimensions=[{"name": "ring"}],
    )  # fmt: skip
    block = tracks(run)
    found = unpacked(block)
    assert found["compute"] == [(0, 10, "one", 1, True), (12, 20, "two <b> ", 1, False)]
    assert found["communication"] == [(10, 30, "sum", 1, True)]
    assert found["critical path"] == [(0, 10, "one", 1, True), (10, 30, "sum", 1, True)]
    # Chunks that overlap are in tracks of their own.
    assert found["ring (chunks)"] == [(10, 20, "all-reduce chunk 0", 1, False)]
    assert found["ring (chunks) (2)"] == [(15, 30, "all-reduce chunk 1", 1, False)]
    assert [group["ranks"] for group in block["groups"]] == [0, 3]
    assert block["joined"] == 0


def test_more_tracks_than_are_drawn_are_counted(build: Build) -> None:
    many = [{"kind": "send", "name": f"s{i}", "start": 0, "end": 10} for i in range(LANES_SHOWN + 3)]
    titles = [title for title, _, _ in tracks(build([{"nodes": many}]))["tracks"]]
    assert "3 more not drawn" in titles[-1]


def test_runs_beside_each_other_have_one_scale(build: Build) -> None:
    node = {"kind": "compute", "name": "one", "start": 0, "end": 10}
    block = tracks_beside({"A": build([{"nodes": [node]}]), "B": build([{"nodes": [node]}], tick_ns=2)})
    assert block["end"] == 20
    assert [group["finish"] for group in block["groups"]] == [10, 10, 20, 20]


def test_a_run_of_nothing_is_a_page_too(build: Build) -> None:
    block = tracks(build([{"nodes": []}]))
    assert block["slices"] == 0
    assert tracks(build([]))["groups"] == []


def test_a_million_slices_that_repeat_nothing_fit(build: Build) -> None:
    events, rng = 1_000_000, np.random.default_rng(0)
    one = build([{"nodes": [{"kind": "collective", "label": "all-reduce", "start": 0, "end": 1}]}])
    end = np.cumsum(rng.integers(1, 1 << 24, events) + rng.integers(0, 1 << 24, events))
    start = np.concatenate(([0], end[:-1]))
    length = np.maximum((end - start) // 2, 1)
    zeros = np.zeros(events, np.int64)
    run = replace(
        one, finish=end[-1:], phase_class=zeros.astype(np.int32), phase_node=zeros.astype(np.int32),
        phase_chunk=np.arange(events, dtype=np.int32) % 97, phase_index=zeros.astype(np.int16),
        phase_dim=zeros.astype(np.int16), phase_operation=zeros.astype(np.int8), phase_start=start,
        phase_end=start + length, phase_bytes=rng.integers(1, 1000, events), phase_port_bytes=zeros,
    )  # fmt: skip
    block = tracks(run)
    assert len(block["data"]) <= MOST_TEXT
    # What was joined is counted, and the page says below which time.
    assert block["slices"] >= events
    assert block["joined"] > 0
