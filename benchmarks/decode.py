"""How fast traces are read: one file of a million nodes (112 MB), and 4,096 files of one node.

Prints one JSON line per case. `seconds` is the best of five warm reads, `cold_seconds` the first read of a
fresh process with compiled kernels in the cache, `cpu` the processor time of the best, which a busy machine leaves
alone, and `peak_mib` the peak memory of that process. `two_passes` is the
CPU time of decoding the long file by counting first and then writing, as a multiple of that of one pass into columns
of estimated sizes, both taken in turn. Goal: a million nodes in 0.15 s. The limit is memory: clearing and
filling the pages of the file and of its columns (280 MB) takes half of the time, on a busy core 100 ms; the parser, in
which every byte decides what the next one means, takes the other half.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from armillary.trace import (
    Graph,
    GraphBuilder,
    Trace,
    _decode,
    load_trace,
    read_graph,
    write_graph,
    write_trace,
)

NODES = 1_000_000
FILES = 4096


def long_graph(nodes: int) -> Graph:
    """Return layers of two compute nodes, an all-reduce and a lookup on the CPU, `nodes` in all."""
    builder, last = GraphBuilder(), []
    for layer in range(250):
        forward = builder.compute(
            f"model.transformer.layers.{layer}.mlp.dense_h_to_4h", flops=1 << 33, bytes=1 << 27, after=last
        )
        weight = builder.compute(
            f"model.transformer.layers.{layer}.mlp.dense_h_to_4h.wgrad",
            flops=1 << 34,
            bytes=1 << 27,
            after=[forward],
        )
        reduced = builder.all_reduce(
            f"model.transformer.layers.{layer}.gradients.bucket.all_reduce",
            1 << 26,
            group="3",
            after=[weight],
            ctrl_after=[forward],
        )
        cpu = builder.compute(
            "aten::_embedding_bag_forward_only.lookup", duration_micros=17 + layer, cpu=True, after=[forward]
        )
        last = [reduced, cpu]
    block, copies = builder.graph().columns, nodes // 1000
    shift = np.repeat(np.arange(copies), 1000)
    rows = np.empty((len(block.rows), nodes + 2), dtype=np.int64)
    rows[:, 0] = block.rows[:, 0]
    rows[:, 1:-1] = np.tile(block.rows[:, 1:-1], copies)
    rows[:, -1] = 0
    rows[0, 1:-1] += shift * 1000
    sizes = [len(block.ctrl), len(block.data), len(block.attr_name)]
    for row, size in enumerate(sizes, start=len(rows) - 3):
        rows[row, 1:-1] += shift * size
        rows[row, -1] = size * copies
    columns = replace(
        block,
        frame_ptr=np.array([0, nodes + 1]),
        rows=rows,
        ctrl=np.tile(block.ctrl, copies) + np.repeat(np.arange(copies) * 1000, sizes[0]),
        data=np.tile(block.data, copies) + np.repeat(np.arange(copies) * 1000, sizes[1]),
        attr_name=np.tile(block.attr_name, copies),
        attr_kind=np.tile(block.attr_kind, copies),
        attr_value=np.tile(block.attr_value, copies),
    )
    return Graph(columns, 0, "long")


def peak_kib() -> int:
    """Return the peak memory of this process alone."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def read(case: str, path: str) -> dict[str, object]:
    """Read `path` once cold and five times warm."""
    seconds, cpu = [], []
    for _ in range(6):
        start, begin = time.perf_counter(), time.process_time()
        if case == "decode_file":
            nodes = read_graph(path).n_nodes
        else:
            trace = load_trace(path)
            trace.structures()
            nodes = trace.n_ranks
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - begin)
    best = min(seconds[1:])
    times: dict[int, float] = {}
    for _ in range(3 if case == "decode_file" else 0):
        for least in (1 << 60, _decode.ONCE_FROM):
            begin = time.process_time()
            _decode_from(path, least)
            times[least] = min(times.get(least, float("inf")), time.process_time() - begin)
    two, *once = times.values() or (0.0,)
    return {
        "name": case,
        "seconds": round(best, 4),
        "cpu": round(min(cpu), 4),
        "peak_mib": round(peak_kib() / 1024, 1),
        "nodes_per_second": round(nodes / best),
        "cold_seconds": round(seconds[0], 4),
        **({"two_passes": round(two / once[0], 2)} if once else {}),
    }


def _decode_from(path: str, least: int) -> None:
    """Decode a file, in one pass if it has `least` bytes or more."""
    usual, _decode.ONCE_FROM = _decode.ONCE_FROM, least
    try:
        read_graph(path)
    finally:
        _decode.ONCE_FROM = usual


def main() -> None:
    """Write both inputs into a temporary folder and read each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        long, many = Path(folder) / "long.et", Path(folder) / "many"
        write_graph(long, long_graph(NODES))
        graphs = []
        for rank in range(FILES):
            builder = GraphBuilder(first_id=rank)
            builder.all_reduce("ALL_REDUCE", 1 << 30)
            graphs.append(builder.graph())
        write_trace(many, Trace.from_ranks(graphs))
        for case, path, size in (("decode_file", long, long.stat().st_size), ("decode_ranks", many, None)):
            command = [sys.executable, __file__, case, str(path)]
            line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(json.dumps(line | ({"megabytes": round(size / 1e6, 1)} if size else {"files": FILES})))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(read(sys.argv[1], sys.argv[2])))
    else:
        main()
