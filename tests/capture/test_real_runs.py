"""Captured programs against the same programs run on gloo: communications of every rank, in order, and GEMMs."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from armillary.capture import capture_script, trace_of
from armillary.convert import front_end
from armillary.convert.launch import collect_script
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.expand import expand
from armillary.trace.trace import read_groups

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAMS = Path(__file__).parents[1] / "convert" / "programs"
OF_FOUR = sorted(PROGRAMS.glob("*.py"))
LARGER = [
    *(
        (Path(__file__).with_name("programs") / f"{name}.py", 8)
        for name in ("accumulate", "dispatch", "stages")
    ),
    (PROGRAMS / "context.py", 8),
    (Path(__file__).with_name("programs") / "stages.py", 16),
]
ON_GPU = "import torch\ntorch.set_default_device('cuda')\n"
Called = tuple[str, int, tuple[int, ...]]


def on_gpu(program: Path, folder: Path) -> Path:
    """Return the program with its tensors on GPUs: gloo's programs have them on CPUs."""
    future, _, rest = program.read_text().partition("import annotations\n")
    changed = folder / program.name
    changed.write_text(f"{future}import annotations\n{ON_GPU}{rest}".replace('"cpu"', '"cuda"'))
    return changed


def calls(trace: Trace, rank: int) -> dict[tuple[int, ...], list[Called]]:
    """Return, by the ranks of a group, its collectives in order; by a pair of ranks, their messages."""
    whole = expand(trace)
    graph: Graph = whole.graph(rank)
    groups, _ = read_groups(whole)
    names, lists = graph.strings("pg_name")
    kinds, sizes = graph.ints("comm_type", -1), graph.ints("comm_size")
    found: dict[tuple[int, ...], list[Called]] = {}
    for node in range(graph.n_nodes):
        type_ = int(graph.types[node])
        if type_ == NodeType.COMM_COLL_NODE:
            number = int(lists[names[node]]) if names[node] >= 0 else 0
            members = tuple(np.sort(groups[number]).tolist()) if number else tuple(range(whole.n_ranks))
            kind = CollectiveType(int(kinds[node])).name
        elif type_ in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
            members = int(graph.ints("comm_src")[node]), int(graph.ints("comm_dst")[node])
            kind = "SEND" if type_ == NodeType.COMM_SEND_NODE else "RECV"
        else:
            continue
        found.setdefault(members, []).append((kind, int(sizes[node]), members))
    return found


def gemms(trace: Trace, rank: int) -> Counter[tuple[int, ...]]:
    """Return the matrix products of a rank, and how often it has them."""
    codes, lists = trace.graph(rank).int_lists("gemm")
    return Counter(lists[code] for code in codes.tolist() if code >= 0)


@pytest.mark.parametrize(
    ("program", "ranks"),
    [*((each, 4) for each in OF_FOUR), *LARGER],
    ids=[*(each.stem for each in OF_FOUR), *(f"{each.stem}-{ranks}" for each, ranks in LARGER)],
)
def test_all_ranks_communicate_as_in_a_real_run(program: Path, ranks: int, tmp_path: Path) -> None:
    collect_script(program, folder=tmp_path / "real", ranks=ranks)
    real = front_end("pytorch").convert([tmp_path / "real"]).trace
    captured = trace_of(capture_script(str(on_gpu(program, tmp_path)), folder=tmp_path / "cap", ranks=ranks))
    for rank in range(ranks):
        assert calls(captured, rank) == calls(real, rank), rank
        assert gemms(captured, rank) == gemms(real, rank), rank
