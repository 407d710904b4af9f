"""What each network model costs through `armillary.simulate`, profile physical; one JSON line per case.

Usage: python benchmarks/rungs.py [--table | NAME ...]

Without arguments the cases with claims run: `limit` is on `cpu`, `least` on `hops_per_second`. With `--table`
an all-reduce and an all-to-all run on every rung, and a Markdown table follows. Every case has a process of its own;
`cpu` is the processor time of the best simulation of `runs` with warm kernels, the making of the trace not included:
what it takes where nothing else runs, for it keeps one core busy. `seconds` is its wall time, `loop` the part of the
event loop, by which `hops_per_second` is. `hops` are links that messages cross, in `packet` 4096 bytes of them each;
`pending` messages are in flight or wait at once.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MB = 1_000_000
LINK = {"bandwidth": "50 GB/s", "latency": "500 ns"}
RUNGS: dict[str, dict[str, Any]] = {
    "analytical": {},
    "congestion": {},
    "flow": {},
    "packet, lossless": {"protocol": "lossless", "mtu": "4096 B"},
    "packet, credit": {"protocol": "credit"},
    "packet, tcp": {"protocol": "tcp"},
}
OPERATIONS = ("all-reduce", "all-to-all")
NPUS, SIZES = (16, 64, 256, 1024), (1, 16, 256)
AT_NPUS = 64
"""At which number of NPUs the bytes vary; else they are 1 MB."""
LEFT_OUT = {("packet, tcp", 256)}
"""Rungs and MB that would take minutes."""


@dataclass
class Case:
    """One collective on one machine; `hops` are counted by the use of links where they are not known."""

    operation: str
    size: int
    npus: int
    platform: Mapping[str, Any]
    model: str
    hops: int = 0
    runs: int = 3
    claims: Mapping[str, float] = field(default_factory=dict)


def machine(network: list[Any], algorithm: str = "", **keys: Any) -> dict[str, Any]:
    """A platform of dimensions; all-to-all by `algorithm`, in one chunk unless `keys` say otherwise."""
    collectives = {"chunks": 1, **({"all-to-all": algorithm} if algorithm else {}), **keys}
    return {"network": network, "collectives": collectives}


def graph(algorithm: str, packets: Mapping[str, Any] | None = None, **topology: Any) -> dict[str, Any]:
    """A platform that is a graph; one level, one chunk."""
    found = {"topology": {**LINK, "routing": "ecmp", **topology}}
    found["collectives"] = {"chunks": 1, "all-to-all": algorithm}
    return found | ({"packets": packets} if packets else {})


def claims() -> dict[str, Case]:
    """Return the cases with claims."""
    ring = {"topology": "Ring", **LINK}
    leaves = {"kind": "leaf-spine", "leaves": 8, "spines": 8, "npus_per_leaf": 16}
    switch = machine([{"topology": "Switch", "size": 256, **LINK}], "direct")
    packets = {"protocol": "lossless", "mtu": "4096 B"}
    some = machine([ring | {"size": 64}], "direct", chunks=16, active_chunks=1)
    many = machine([ring | {"size": 256}], "direct")
    tree = {"kind": "fat-tree", "k": 16}
    # The farthest NPU of a ring of n is n / 2 away, and the mean over the others n * n / 4 / (n - 1).
    return {
        "congestion, switch of 256": Case(
            "all-to-all", MB, 256, switch, "congestion", 2 * 256 * 255, claims={"limit": 0.3}
        ),
        "congestion, ring of 64": Case(
            "all-to-all", 16 * MB, 64, some, "congestion", 16 * 64**3 // 4,
            claims={"pending": 4032, "least": 2e6},
        ),
        "congestion, ring of 256": Case(
            "all-to-all", MB, 256, many, "congestion", 256**3 // 4, claims={"pending": 65280, "least": 1e6}
        ),
        "flow, fat tree of 1024, 1023 shift rounds": Case(
            "all-to-all", 1024 * MB, 1024, graph("pairwise", **tree), "flow", runs=1, claims={"limit": 20}
        ),
        "packet, leaf-spine of 128": Case(
            "all-to-all", 16 * MB, 128, graph("direct", packets, **leaves), "packet", claims={"least": 2e6}
        ),
        "packet, fat tree of 1024, 1023 shift rounds": Case(
            "all-to-all", 4 * MB, 1024, graph("pairwise", packets, **tree), "packet", runs=1
        ),
    }  # fmt: skip


def rungs() -> dict[str, Case]:
    """Return the cases of the table: hosts of 8 NPUs on a switch of 450 GB/s, and a switch of 50 GB/s for all hosts."""
    cells = [(npus, 1) for npus in NPUS] + [(AT_NPUS, size) for size in SIZES[1:]]
    return {
        f"{rung}, {operation} of {size} MB on {npus}": Case(
            operation,
            size * MB,
            npus,
            machine(
                [
                    {"topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "250 ns"},
                    {"topology": "Switch", "size": npus // 8, **LINK},
                ]
            )
            | ({"packets": packets} if packets else {}),
            rung.split(",")[0],
            runs=2,
        )
        for operation in OPERATIONS
        for rung, packets in RUNGS.items()
        for npus, size in cells
        if (rung, size) not in LEFT_OUT
    }


def time_loop(load: Callable[..., Any], used: list[float], engine: Any) -> None:
    """Let `engine` add the processor time of the event loop to `used`."""

    def timed(*words: Any) -> SimpleNamespace:
        kernel = load(*words)

        def run(*arguments: Any) -> Any:
            start = time.process_time()
            more = kernel.run(*arguments)
            used[0] += time.process_time() - start
            return more

        return SimpleNamespace(run=run)

    engine.load = timed


def measure(name: str, case: Case) -> dict[str, Any]:
    """Simulate once to warm up, then `runs` times; returns the row of the fastest."""
    import armillary
    from armillary.engine.messages import run as engine
    from armillary.platform.files.native import load_platform
    from armillary.workload.micro.collectives import collective_trace

    platform = load_platform(dict(case.platform))
    trace = collective_trace(case.operation, case.npus, case.npus, case.size)
    engine.INTERPRETED_EVENTS = 0
    used = [0.0]
    if case.model != "analytical":
        idle = collective_trace("barrier", case.npus, case.npus, 0)
        armillary.simulate(idle, platform, network_model=case.model)
        time_loop(engine.load, used, engine)
    best = (float("inf"), 0.0, 0.0)
    for _ in range(case.runs):
        used[0] = 0.0
        start, cpu = time.perf_counter(), time.process_time()
        timeline = armillary.simulate(trace, platform, network_model=case.model)
        best = min(best, (time.process_time() - cpu, time.perf_counter() - start, used[0]))
    row: dict[str, Any] = {"name": name, "cpu": best[0], "seconds": best[1], "loop": best[2]}
    hops = case.hops
    if not hops and case.model == "packet" and timeline.network is not None:
        hops = int(timeline.network.use.size.sum()) // 4096
    if hops:
        row |= {"hops": hops, "hops_per_second": round(hops / best[2])}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row |= {"events": timeline.info["events"], "ns": timeline.total_ticks, "peak_mib": round(peak)}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()} | dict(
        case.claims
    )


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the rows of `rungs` in Markdown."""
    columns = [(npus, 1) for npus in NPUS] + [(AT_NPUS, size) for size in SIZES[1:]]
    lines = []
    for operation in OPERATIONS:
        lines += ["", f"| {operation} | " + " | ".join(f"{n} NPUs, {s} MB" for n, s in columns) + " |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for rung in RUNGS:
            found = [rows.get(f"{rung}, {operation} of {s} MB on {n}") for n, s in columns]
            lines.append(f"| {rung} | " + " | ".join(map(_cell, found)) + " |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "—"
    seconds, events = row["cpu"], row["events"]
    count = f"{events / 1e6:.1f} M" if events >= 1e6 else f"{events:,}"
    return f"{seconds:.2g} s, {count}, {row['peak_mib']:,} MiB, {row['ns'] / 1000:,.0f} µs"


def main() -> None:
    """Measure the cases named on the command line, those with claims, or the table."""
    words = sys.argv[1:]
    cases = {**claims(), **rungs()}
    if words[:1] == ["--here"]:
        print(json.dumps(measure(words[1], cases[words[1]])), flush=True)
        return
    rows = {}
    for name in list(rungs()) if words == ["--table"] else words or list(claims()):
        line = subprocess.run(
            [sys.executable, __file__, "--here", name], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        print(line, end="", flush=True)
        rows[name] = json.loads(line)
    if words == ["--table"]:
        print(table(rows))


if __name__ == "__main__":
    main()
