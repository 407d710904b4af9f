"""Measure the simulator's speed claims; one JSON line each, every measurement in a process of its own.

Usage: python benchmarks/simulate.py [NAME ...]

`seconds` is wall time of the best repetition with warm kernels, unless the name says otherwise; `limit` is
the claim; `peak_mib` the peak memory of that process, interpreter and libraries included.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TORUS_TICKS = 10_366_400
ARMILLARY = [sys.executable, "-m", "armillary"]


def torus(sizes: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """ASTRA-sim network and system of a 3-D torus."""
    network = {
        "topology": ["Ring"] * 3,
        "npus_count": sizes,
        "bandwidth": [250.0, 200.0, 100.0],
        "latency": [500.0] * 3,
    }
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 64,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1600,
    } | {f"{name}-implementation": ["ring"] * 3 for name in kinds}
    return network, system


def all_reduce() -> Any:
    from armillary.trace import GraphBuilder

    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size="1 GiB")
    return builder.graph()


def prepare(folder: Path) -> list[str]:
    """Write the torus's files and return the arguments of `armillary run`."""
    from armillary.trace import Trace, write_trace

    network, system = torus([16, 16, 16])
    (folder / "network.yml").write_text(json.dumps(network))
    (folder / "system.json").write_text(json.dumps(system))
    write_trace(folder / "all_reduce", Trace.replicate(all_reduce(), ranks=4096))
    files = {"workload": "all_reduce", "system": "system.json", "network": "network.yml"}
    return ["run", *(word for key, name in files.items() for word in (f"--{key}", str(folder / name)))]


def best(action: Callable[[], Any], repeat: int = 5) -> tuple[float, Any]:
    """Return the shortest wall time of `repeat` calls after one more, and the last result."""
    action()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - start)
    return min(times), result


def torus_files(folder: Path) -> dict[str, Any]:
    import armillary

    prepare(folder)
    names = (folder / "all_reduce", folder / "system.json", folder / "network.yml")
    seconds, result = best(lambda: armillary.astra_sim.simulate(*names))
    assert set(result.finish_ticks.tolist()) == {TORUS_TICKS}
    return {"seconds": seconds, "limit": 0.1, "files": 4096}


def replicated(
    sizes: list[int], repeat: int = 5, profile: str = "astra-sim", **options: Any
) -> tuple[float, Any]:
    import armillary
    from armillary.platform import read_platform
    from armillary.trace import Trace

    network, system = torus(sizes)
    platform = read_platform(system, network)
    trace = Trace.replicate(all_reduce(), ranks=platform.npus)
    return best(lambda: armillary.simulate(trace, platform, profile=profile, **options), repeat)


def torus_replicated(_: Path) -> dict[str, Any]:
    seconds, result = replicated([16, 16, 16])
    assert result.total_ticks == TORUS_TICKS
    return {"seconds": seconds, "limit": 0.02}


def torus_unfolded(_: Path) -> dict[str, Any]:
    seconds, result = replicated([16, 16, 16], repeat=1, fold=False)
    assert set(result.finish_ticks.tolist()) == {TORUS_TICKS}
    return {"seconds": seconds, "limit": 3.0}


def million_npus(_: Path) -> dict[str, Any]:
    seconds, result = replicated([64, 128, 128])
    return {"seconds": seconds, "limit": 0.5, "limit_mib": 500, "npus": result.n_ranks}


def physical_torus_replicated(_: Path) -> dict[str, Any]:
    seconds, _result = replicated([16, 16, 16], profile="physical")
    return {"seconds": seconds, "limit": 0.06}


def physical_torus_files(folder: Path) -> dict[str, Any]:
    import armillary
    from armillary.platform import read_platform

    prepare(folder)
    network, system = torus([16, 16, 16])
    platform = read_platform(system, network)
    seconds, _ = best(lambda: armillary.simulate(armillary.load_trace(folder / "all_reduce"), platform))
    return {"seconds": seconds, "limit": 0.3, "files": 4096}


def physical_torus_unfolded(_: Path) -> dict[str, Any]:
    seconds, _result = replicated([16, 16, 16], repeat=1, profile="physical", fold=False)
    return {"seconds": seconds, "limit": 9.0}


def physical_million_npus(_: Path) -> dict[str, Any]:
    seconds, result = replicated([64, 128, 128], profile="physical")
    return {"seconds": seconds, "limit": 1.5, "limit_mib": 1500, "npus": result.n_ranks}


def torus_command(folder: Path) -> dict[str, Any]:
    arguments = [*ARMILLARY, *prepare(folder)]
    seconds, _ = best(lambda: subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL), 3)
    return {"seconds": seconds, "limit": 1.0}


def distinct_nodes(_: Path) -> dict[str, Any]:
    return {**distinct(64, 100_000, "astra-sim"), "limit_nodes_per_second": 1_000_000}


def physical_distinct_nodes(_: Path) -> dict[str, Any]:
    return {
        **distinct(64, 100_000, "physical"),
        "limit_nodes_per_second": 500_000,
        "goal_nodes_per_second": 4_000_000,
        "goal_mib": 700,
    }


def distinct(ranks: int, nodes: int, profile: str) -> dict[str, Any]:
    """Every rank has a graph of its own: a chain of compute, an all-reduce after every tenth node.

    The goal's limit: two events for each node, and the memory of the input (64 bytes a node, 410 MB) besides 32 bytes
    a node of the state and 16 of the result.
    """
    import dataclasses

    import numpy as np

    import armillary
    from armillary.platform import read_platform
    from armillary.trace import Graph, GraphBuilder, Trace
    from armillary.trace import columns as c

    builder = GraphBuilder()
    last: list[int] = []
    for number in range(nodes):
        if number % 10 == 9:
            builder.all_reduce("gradients", size=1 << 20, after=last)
        else:
            last = [builder.compute("work", duration_micros=1, after=last)]
    pattern = builder.graph()
    random = np.random.default_rng(1)
    graphs = []
    for rank in range(ranks):
        rows = pattern.columns.rows.copy()
        rows[c.DURATION, 1 : nodes + 1] = random.integers(1, 200, nodes)
        columns = dataclasses.replace(pattern.columns, rows=rows)
        graphs.append(Graph(columns, 0, f"rank {rank}"))
    # Nodes as objects are no part of the input: files are read without them.
    builder.nodes.clear()
    network, system = torus([4, 4, 4])
    platform = read_platform(system | {"preferred-dataset-splits": 1}, network)
    trace = Trace.from_ranks(graphs)
    seconds, cpu = float("inf"), float("inf")
    for _ in range(3):
        start, begin = time.perf_counter(), time.process_time()
        # The result goes at once: the peak is that of one run.
        armillary.simulate(trace, platform, profile=profile)
        seconds, cpu = min(seconds, time.perf_counter() - start), min(cpu, time.process_time() - begin)
        gc.collect()
    per_second = round(ranks * nodes / min(seconds, cpu))
    return {"seconds": seconds, "cpu_seconds": cpu, "nodes_per_second": per_second}


def pipeline(tp: int, dp: int, pp: int, nodes: int, microbatches: int) -> Any:
    """A trace with a grid: stages of about `nodes` nodes that all-reduce in groups of `tp` and send along pp."""
    import numpy as np

    from armillary.trace import GraphBuilder, Trace
    from armillary.trace.grid import AXIS, RankGrid

    grid = RankGrid((tp, dp, pp), {"tp": (0,), "dp": (1,), "pp": (2,)}, {"pp.ends": ("pp", (0, pp - 1))})
    graphs = []
    for stage in range(pp):
        b = GraphBuilder()
        last: list[int] = []
        for step in (1, -1):
            for microbatch in range(microbatches):
                if 0 <= stage - step < pp:
                    last = [b.recv(-step, 1 << 20, microbatch, after=last)]
                    b.nodes[-1].attrs.append((AXIS, "string", "pp"))
                for number in range(nodes // microbatches // 2):
                    if number % 4 == 3:
                        last = [b.all_reduce("activations", 1 << 22, group="tp", after=last)]
                    else:
                        last = [b.compute("gemm", duration_micros=100 + stage, after=last)]
                if 0 <= stage + step < pp:
                    b.send(step, 1 << 20, microbatch, after=last)
                    b.nodes[-1].attrs.append((AXIS, "string", "pp"))
        last = [b.all_reduce("gradients", 1 << 28, group="dp", after=last)]
        if stage in (0, pp - 1):
            b.all_reduce("embedding", 1 << 20, group="pp.ends", after=last)
        graphs.append(b.graph(f"stage {stage}"))
    return Trace(tuple(graphs), grid.coordinate("pp").astype(np.int32), grid)


def symbolic(dp: int, repeat: int = 3) -> dict[str, Any]:
    """Simulate 8 x dp x 16 ranks, 15,000 nodes each."""
    import armillary
    from armillary.platform.model import Platform
    from armillary.platform.network import Dimension

    trace = pipeline(8, dp, 16, 15_000, 64)
    platform = Platform(
        (Dimension("node", "Switch", 8, 450.0, 500.0), Dimension("fabric", "Switch", dp * 16, 50.0, 2000.0))
    )
    seconds, result = best(lambda: armillary.simulate(trace, platform), repeat)
    return {"seconds": seconds, "npus": result.n_ranks, "classes": len(result.representative)}


def symbolic_32k_npus(_: Path) -> dict[str, Any]:
    return {**symbolic(256), "limit": 3.0, "limit_mib": 1000}


def symbolic_131k_npus(_: Path) -> dict[str, Any]:
    return {**symbolic(1024), "limit": 5.0, "limit_mib": 1500}


def outstanding(profile: str = "physical", **options: Any) -> dict[str, Any]:
    """20,000 messages on one channel, all of which wait for a node of a second and then leave at once."""
    import armillary
    from armillary.platform.model import Platform
    from armillary.platform.network import Dimension
    from armillary.trace import GraphBuilder, Trace

    graphs = []
    for rank in range(2):
        b = GraphBuilder(rank=rank)
        long = b.compute("long", duration_micros=10**6)
        for _ in range(20_000):
            move = b.recv if rank else b.send
            move(1 - rank, 1000, after=[long])
        graphs.append(b.graph(f"rank {rank}"))
    trace, platform = Trace.from_ranks(graphs), Platform((Dimension("fabric", "Switch", 2, 50.0, 500.0),))
    seconds, _ = best(lambda: armillary.simulate(trace, platform, profile=profile, **options), 3)
    return {"seconds": seconds, "limit": 1.0, "messages": 20_000}


def outstanding_messages(_: Path) -> dict[str, Any]:
    return outstanding()


def outstanding_messages_congestion(_: Path) -> dict[str, Any]:
    return outstanding(network_model="congestion")


def outstanding_messages_flow(_: Path) -> dict[str, Any]:
    return outstanding(network_model="flow")


def outstanding_messages_packet(_: Path) -> dict[str, Any]:
    return outstanding(network_model="packet")


def outstanding_messages_astra_sim(_: Path) -> dict[str, Any]:
    return outstanding("astra-sim")


def symbolic_written(folder: Path) -> dict[str, Any]:
    from armillary.trace import write_trace

    trace = pipeline(8, 2, 4, 5_000, 8)
    seconds, _ = best(lambda: write_trace(folder / "t", trace))
    return {"seconds": seconds, "limit": 0.5, "files": trace.n_ranks, "nodes": trace.total_nodes}


def symbolic_checked(_: Path) -> dict[str, Any]:
    from armillary.trace.check_ranks import check_trace

    trace = pipeline(8, 1024, 16, 15_000, 64)
    seconds, found = best(lambda: check_trace(trace), 1)
    assert not found.all
    return {"seconds": seconds, "limit": 10.0, "npus": trace.n_ranks}


def command_time(arguments: list[str], **environment: str) -> tuple[float, float]:
    """Return the wall and CPU seconds of one run of the command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [*ARMILLARY, *arguments], check=True, stdout=subprocess.DEVNULL, env=os.environ | environment
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_run_cold(folder: Path) -> dict[str, Any]:
    """All ranks of the torus on their own, so that the kernels must be compiled."""
    arguments = [*prepare(folder), "--no-fold"]
    wall, cpu = command_time(arguments, XDG_CACHE_HOME=str(folder / "cache"))
    return {"seconds": wall, "cpu_seconds": cpu, "limit": 15.0}


def first_small_run_cold(folder: Path) -> dict[str, Any]:
    study = folder / "small.yaml"
    study.write_text(
        "workload: {collective: all-reduce, size: 1 MiB}\nprofile: astra-sim\n"
        "platform: {network: [{topology: Ring, size: 8, bandwidth: 50 GB/s, latency: 500 ns}]}\n"
    )
    wall, cpu = command_time(["run", str(study)], XDG_CACHE_HOME=str(folder / "cache"))
    return {"seconds": wall, "cpu_seconds": cpu, "limit": 1.0}


def help_page(_: Path) -> dict[str, Any]:
    cpu = min(command_time(["--help"])[1] for _ in range(5))
    return {"seconds": cpu, "limit": 0.15, "measure": "CPU"}


CASES = {
    case.__name__: case
    for case in (
        help_page,
        torus_replicated,
        torus_files,
        torus_command,
        torus_unfolded,
        million_npus,
        distinct_nodes,
        physical_torus_replicated,
        physical_torus_files,
        physical_torus_unfolded,
        physical_million_npus,
        physical_distinct_nodes,
        symbolic_32k_npus,
        symbolic_131k_npus,
        outstanding_messages,
        outstanding_messages_congestion,
        outstanding_messages_flow,
        outstanding_messages_packet,
        outstanding_messages_astra_sim,
        symbolic_written,
        symbolic_checked,
        first_run_cold,
        first_small_run_cold,
    )
}


def measure(name: str) -> None:
    """Run one case here and print its line."""
    with tempfile.TemporaryDirectory() as folder:
        values = CASES[name](Path(folder))
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    values = {"name": name} | values | {"peak_mib": peak / 1024}
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}), flush=True)


def main() -> None:
    """Measure the cases named on the command line, or all."""
    words = sys.argv[1:]
    if words[:1] == ["--here"]:
        measure(words[1])
        return
    for name in words or CASES:
        subprocess.run([sys.executable, __file__, "--here", name], check=True)


if __name__ == "__main__":
    main()
