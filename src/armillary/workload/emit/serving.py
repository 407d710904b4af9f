"""The graph of one pipeline stage in inference: prefill of every microbatch, then token by token."""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.allowed import Pace
from armillary.trace import Graph
from armillary.trace.grid import RankGrid
from armillary.workload.emit.rank import Nodes, Rank
from armillary.workload.emit.template import piece
from armillary.workload.layers.layer import Layer
from armillary.workload.plan.schema import Plan, Serve

FIRST, NEXT = "first token", "next token"
"""Names of the kernels that choose tokens, on the last stage."""
_TOKEN = 4
"""Bytes of a token id."""
Stages = list[list[tuple[int, Layer]]]


def rounds(serve: Serve) -> list[tuple[int, int]]:
    """Return (new tokens per sequence, keys that its queries see) of the prefill and of every decode step."""
    prefill = [(serve.prompt, serve.prompt)] if serve.phase != "decode" else []
    # Prefill makes the first token, so decode has one step fewer than there are outputs.
    steps = range(1, serve.outputs) if serve.phase != "prefill" else range(0)
    return prefill + [(1, serve.prompt + step) for step in steps]


def serving_graph(
    plan: Plan, grid: RankGrid, stage: int, microbatches: int, stages_of: Callable[[int, int], Stages]
) -> Graph:
    """Return the graph of a stage.

    Args:
        plan: The run, with `plan.serve`.
        grid: Its ranks.
        stage: The pipeline rank.
        microbatches: Groups of sequences that follow each other through the pipeline.
        stages_of: The layers of all stages, with their numbers, for an entry of `rounds`.
    """
    assert plan.serve is not None
    rank, last = Rank(f"stage {stage}", grid), plan.parallel.pp - 1
    # Where the tokens of the last round come from, on the stage that chooses them.
    tokens: list[Nodes] = [()] * microbatches
    steps = rounds(plan.serve)
    pace = Pace(f"generating stage {stage}", len(steps), "steps", "fewer outputs")
    for number, (new, context) in enumerate(steps):
        pace.at(number)
        stages = stages_of(new, context)
        pieces = {id(layer): piece(layer.forward) for _, layer in stages[stage]}
        for microbatch in range(microbatches):
            rank.labels = {"layer": -1, "micro_batch": microbatch}
            now = tokens[microbatch]
            if stage:
                now = [rank.recv("receive activations", "pp", -1, stages[stage - 1][-1][1].boundary, 1)]
            # Autoregression: the first stage needs the token that the last stage has just chosen.
            elif number and last:
                now = [rank.recv("receive tokens", "pp", -1, plan.microbatch * _TOKEN, 2)]
            for index, layer in stages[stage]:
                rank.labels["layer"] = index
                base = rank.piece(pieces[id(layer)], now)
                now = [base + node for node in pieces[id(layer)].last]
            if stage < last:
                rank.send("send activations", "pp", 1, stages[stage][-1][1].boundary, 1, now)
                continue
            name = FIRST if number == 0 and plan.serve.phase != "decode" else NEXT
            tokens[microbatch] = [rank.kernel(name, plan.microbatch * _TOKEN, now)]
            # A ring along pp: one step on from the last stage is the first. The last tokens stay.
            if last and number + 1 < len(steps):
                rank.send("send tokens", "pp", 1, plan.microbatch * _TOKEN, 2, tokens[microbatch])
    return rank.graph()
