"""How long serving takes: a fleet of a million requests, twenty minutes of a replica, and the times of steps.

Usage: python benchmarks/serve.py [NAME ...]

Prints one JSON line per case: `seconds` is CPU time of one core with warm kernels, the best of three (of the fleet: of
one); `goal` is what is aimed at. Requests of the fleet come at 80 % of the rate at which its replicas would fall
behind. `step_us` is what a step of a run takes, its schedule of some 200 requests included; `new_step_ms` the times of
all steps of a service, over their number.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from armillary.compute.machine import machine_of
from armillary.serving.load import load_requests
from armillary.serving.service import Service, service
from armillary.serving.spread import Wanted
from armillary.workload.models import load_model

REPLICAS = 125
INPUT, OUTPUT = 1024, 256


def served(model: str, machine: str, load: str, **wanted: Any) -> tuple[Service, Any]:
    """Return a service and the requests of a load."""
    requests = load_requests(load, 0)
    return service(load_model(model), machine_of(machine), requests, Wanted(**wanted)), requests


def cpu(call: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Return the least CPU time of some calls in s, and what the last one returned."""
    best = float("inf")
    for _ in range(times):
        begin = time.process_time()
        found = call()
        best = min(best, time.process_time() - begin)
    return best, found


def most_per_second() -> float:
    """Return the requests that a replica ends per second if all come at once."""
    alone, requests = served(
        "llama-3-70b", "dgx-h100", f"poisson:rate=1000,requests=4000,input={INPUT},output={OUTPUT}", tp=8
    )
    return float(len(requests) / alone.run(requests).e2e.max())


def fleet() -> dict[str, Any]:
    """A million requests on 125 replicas of Llama 3.1 70B."""
    rate = 0.8 * REPLICAS * most_per_second()
    load = f"poisson:rate={rate:.0f},requests=1000000,input={INPUT},output={OUTPUT}"
    found, requests = served("llama-3-70b", f"{REPLICAS}xdgx-h100", load, tp=8, replicas=REPLICAS)
    seconds, _ = cpu(lambda: found.run(requests), 1)
    return {"seconds": seconds, "goal": 60, "requests_per_second": round(rate)}


def replica() -> dict[str, Any]:
    """Twenty minutes of one replica, of about 100,000 steps."""
    rate = 0.8 * most_per_second()
    load = f"poisson:rate={rate:.2f},requests={round(1200 * rate)},input={INPUT},output={OUTPUT}"
    found, requests = served("llama-3-70b", "dgx-h100", load, tp=8)
    seconds, outcome = cpu(lambda: found.run(requests))
    steps = sum(len(each.steps) for each in outcome.replicas)
    return {"seconds": seconds, "goal": 0.5, "steps": steps, "step_us": 1e6 * seconds / steps}


def new_step() -> dict[str, Any]:
    """The times of the steps of Llama 3.1 405B in fp8 on 8 H200."""
    requests = load_requests(f"closed:clients=64,requests=64,input={INPUT},output={OUTPUT}", 0)
    model, machine = load_model("llama-3-405b"), machine_of("dgx-h200")
    seconds, found = cpu(lambda: service(model, machine, requests, Wanted(tp=8, precision="fp8")))
    count = sum(map(len, found.table.axes)) + len(found.table.dense) + len(found.table.head)
    return {"seconds": seconds, "entries": count, "new_step_ms": 1e3 * seconds / count, "goal_ms": 20}


CASES = {"serve_fleet": fleet, "serve_replica": replica, "serve_new_step": new_step}


def main() -> None:
    """Measure the cases named on the command line, or all."""
    for name in sys.argv[1:] or CASES:
        values = CASES[name]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rounded = {
            key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()
        }
        print(json.dumps({"name": name, **rounded, "peak_mib": round(peak)}), flush=True)


if __name__ == "__main__":
    main()
