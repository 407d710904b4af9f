"""How far a step by the levels of a graph is from one whose messages move, over random graphs, models and plans.

    python benchmarks/levels.py --cases 100 --seed 1 --most 64

Prints a line of JSON for each case, and at the end quantiles of ln(messages / levels) over the share of exposed
communication, of which `armillary.explore.training.interval` has two.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.compute.machine import machine_of
from armillary.explore.training.levels import taken
from armillary.explore.training.parts import exposed
from armillary.explore.training.software import software_on
from armillary.explore.training.train import of_plan, predicted
from armillary.studio.drawn import machine_with
from armillary.workload.models.hugging_face import from_hugging_face
from armillary.workload.plan.request import keys_of

LEAST = 0.05
"""Share of exposed communication from which on an error is divided by it."""


def graph(draw: random.Random) -> dict[str, Any]:
    """Return a random graph."""
    rate = draw.choice([12.5, 25, 50, 100, 200])
    links = {"bandwidth": f"{rate} GB/s", "latency": f"{draw.choice([200, 500, 1000, 2000])} ns"}
    kind = draw.choice(["fat-tree", "leaf-spine", "dragonfly", "rail-optimised", "rail-only"])
    if kind == "fat-tree":
        k, more = draw.choice([(4, 1), (4, 2), (4, 4), (6, 1)])
        return {"kind": kind, "k": k, "oversubscription": more, **links}
    if kind == "leaf-spine":
        leaves, each = draw.choice([2, 4, 8, 16]), draw.choice([2, 4, 8, 16])
        spines = draw.choice([each, each // 2, max(1, each // 4)])
        return {"kind": kind, "leaves": leaves, "npus_per_leaf": each, "spines": spines, **links}
    if kind == "dragonfly":
        p, a, h = draw.choice([(2, 4, 1), (1, 4, 2), (2, 2, 2), (4, 4, 1), (1, 8, 1)])
        groups = draw.choice([each for each in (2, 3, 4, 8) if each <= a * h + 1])
        return {"kind": kind, "npus_per_router": p, "routers": a, "global_links": h, "groups": groups,
                "routing": draw.choice(["minimal", "ugal"]), **links}  # fmt: skip
    hosts, each = draw.choice([2, 4, 8]), draw.choice([4, 8])
    held = {"kind": "rail-optimised", "hosts": hosts, "npus_per_host": each, "host_bandwidth": "450 GB/s",
            "host_latency": "1 us", "routing": "rail", **links}  # fmt: skip
    if kind == "rail-only":
        return {**held, "spines": 0}
    per_unit = draw.choice([hosts, hosts // 2])
    uplink = {"uplink": f"{rate / draw.choice([1, 2, 4]) * per_unit / 2} GB/s"}
    return {**held, "spines": 2, "hosts_per_unit": per_unit, **uplink}


def workload(draw: random.Random, npus: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a random model as Hugging Face writes it, and keys of a plan."""
    hidden = draw.choice([1024, 2048, 4096, 8192])
    config: dict[str, Any] = {
        "model_type": "llama", "num_hidden_layers": draw.choice([2, 4]), "hidden_size": hidden,
        "num_attention_heads": hidden // 128, "num_key_value_heads": 8, "vocab_size": 32000,
        "intermediate_size": hidden * 7 // 2, "max_position_embeddings": 8192,
    }  # fmt: skip
    axes: dict[str, int] = {"tp": draw.choice([1, 2, 4, 8]), "pp": draw.choice([1, 1, 2])}
    if draw.random() < 0.3:
        config |= {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
        axes["ep"] = draw.choice([2, 4, 8])
    elif draw.random() < 0.2:
        axes["cp"] = draw.choice([2, 4])
    rest = npus // (axes["tp"] * axes["pp"] * axes.get("cp", 1))
    sharding = draw.choice(["zero-1", "zero-1", "fsdp" if axes["pp"] == 1 else "ddp"])
    return config, {
        "batch": max(1, rest) * draw.choice([1, 2, 4]), "sequence": draw.choice([512, 2048, 4096]),
        "parallel": axes, "data": {"sharding": sharding}, "recompute": "none",
    }  # fmt: skip


def case(draw: random.Random, most: int) -> dict[str, Any] | None:
    """Return a case, or None where the plan does not suit the graph."""
    drawn = graph(draw)
    begin = time.process_time()
    try:
        machine = machine_of(machine_with("dgx-h100", drawn))
        config, given = workload(draw, machine.npus)
        if machine.npus > most:
            return None
        model = from_hugging_face(config)
        exact = predicted(model, machine, given, "megatron-core", "messages")
    except InputError:
        return None
    took = time.process_time() - begin
    # What a software adds to collectives is left out where messages move: here, too.
    kernels = software_on("megatron-core", machine)
    near = of_plan(model, taken(machine, "levels"), kernels, keys_of(exact.plan))
    return {
        "graph": drawn, "npus": machine.npus, "config": config, "plan": given, "cpu_s": round(took, 1),
        "messages_s": exact.step_time_s, "levels_s": near.step_time_s,
        "exposed": exposed(near.parts), "interval_s": near.interval_s,
    }  # fmt: skip


def main() -> None:
    """Draw, print, fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("cases", 60), ("seed", 1), ("most", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    number = 0
    while len(found) < asked.cases:
        number += 1
        if (one := case(random.Random(f"{asked.seed}/{number}"), asked.most)) is not None:
            found.append(one)
            print(json.dumps(one), flush=True)
    logs = np.array([np.log(each["messages_s"] / each["levels_s"]) for each in found])
    share = np.array([each["exposed"] for each in found])
    some = share > LEAST
    low, high = np.quantile(logs[some] / share[some], [0.05, 0.95])
    print(
        f"{len(found)} cases: ln(messages / levels) {logs.min():.3f} to {logs.max():.3f}, mean {logs.mean():.3f}, "
        f"90 % within {np.quantile(logs, 0.05):.3f} to {np.quantile(logs, 0.95):.3f}; of {some.sum()} cases over "
        f"exposed communication {low:.3f} to {high:.3f}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
