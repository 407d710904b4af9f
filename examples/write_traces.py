"""Write the traces of the studies in this folder: run it here, then `armillary run pipeline.yaml`."""

from __future__ import annotations

from pathlib import Path

from armillary.trace import Graph, GraphBuilder, Trace, write_trace

STAGES, REPLICAS, MICROBATCHES = 4, 2, 6


def tensor_parallel_layer(layers: int = 4) -> Graph:
    """Two all-reduces per transformer layer on the critical path: after attention and after the MLP."""
    builder = GraphBuilder()
    last: list[int] = []
    for layer in range(layers):
        for block, micros in (("attention", 90), ("mlp", 160)):
            work = builder.compute(f"{block} {layer}", duration_micros=micros, after=last)
            last = [builder.all_reduce(f"{block} sum {layer}", size="32 MiB", after=[work])]
    return builder.graph()


def pipeline_stage(rank: int) -> Graph:
    """All forwards, then all backwards; activations and their gradients go to the neighbouring stages.

    At the end the replicas of a stage, which form communicator group stage + 1, sum their gradients.
    """
    stage = rank // REPLICAS
    builder = GraphBuilder(rank=rank)
    last: list[int] = []
    for direction, micros, source, target in (
        ("forward", 300, rank - REPLICAS, rank + REPLICAS),
        ("backward", 600, rank + REPLICAS, rank - REPLICAS),
    ):
        for batch in range(MICROBATCHES):
            tag = batch if direction == "forward" else MICROBATCHES + batch
            needs = list(last)
            if 0 <= source < STAGES * REPLICAS:
                needs.append(builder.recv(source, "8 MiB", tag, name=f"recv {direction} {batch}"))
            last = [builder.compute(f"{direction} {batch}", duration_micros=micros, after=needs)]
            if 0 <= target < STAGES * REPLICAS:
                builder.send(target, "8 MiB", tag, name=f"send {direction} {batch}", after=last)
    gradients = builder.all_reduce("gradients", size="256 MiB", group=stage + 1, after=last)
    builder.compute("optimizer", duration_micros=200, after=[gradients])
    return builder.graph()


def main() -> None:
    """Write all traces into the folder `traces`."""
    Path("traces").mkdir(exist_ok=True)
    write_trace("traces/tensor_parallel", Trace.replicate(tensor_parallel_layer(), ranks=8))
    ranks = range(STAGES * REPLICAS)
    write_trace("traces/pipeline", Trace.from_ranks([pipeline_stage(rank) for rank in ranks]))


if __name__ == "__main__":
    main()
