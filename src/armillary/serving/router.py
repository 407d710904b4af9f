"""A router that looks at the replicas: each request goes where it waits for the fewest others.

The loops of the replicas stop at each arrival, so the router sees what is done by then, and go on with the request
that one of them got. A replica of which nothing can be done by then is left alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.base.jit import Mode
from armillary.base.memory import require
from armillary.serving import columns as c
from armillary.serving.replica import INTERPRETED, Engine, Replica, Served
from armillary.serving.requests import Ints, Requests
from armillary.serving.step_table import StepTable

ROUTERS = ("round-robin", "least-loaded")


def least_loaded(
    requests: Requests, replicas: int, engine: Engine, table: StepTable, mode: Mode | None = None
) -> tuple[list[Served], list[Ints]]:
    """Return what each replica that has any requests served, and the numbers of these.

    A request goes to the replica that has the fewest that are not done; of several to the first behind the one that was
    chosen before.

    Args:
        requests: An open load, ascending.
        replicas: How many there are.
        engine: Of each.
        table: Times of its steps.
        mode: Of the kernels; None: what is sooner done.

    Raises:
        InputError: a request can never be served.
        ShortageError: the requests of all replicas need more memory than there is.
    """
    n = len(requests)
    require(
        8 * (c.R_COLUMNS + 1) * n * replicas,
        f"{replicas:,} replicas, any of which may get each of {n:,} requests,",
        "fewer requests or replicas, or router round-robin",
    )  # fmt: skip
    work = int(requests.prompt.sum() // max(1, engine.budget) + requests.output.sum())
    mode = mode or ("interpreted" if work <= INTERPRETED else "compiled")
    # Where nothing is shared, only a preempted request could find blocks: its own.
    if engine.cached and requests.shared is None:
        found, shares = least_loaded(requests, replicas, replace(engine, cached=False), table, mode)
        if not any(each.preempted.any() for each in found):
            return [replace(each, engine=engine) for each in found], shares
    fleet = [Replica(requests, engine, table, mode, router=True) for _ in range(min(replicas, n))]
    chosen, last = np.zeros(n, np.int64), -1
    for r, at in enumerate(requests.arrival.tolist()):
        for each in fleet:
            if each.next <= 2 * at:
                each.advance(2 * at)
        order = [*range(last + 1, len(fleet)), *range(last + 1)]
        last = min(order, key=lambda k: fleet[k].has)
        fleet[last].send(r, at)
        chosen[r] = last
    shares, served = [], []
    for k, each in enumerate(fleet):
        mine = np.flatnonzero(chosen == k)
        if len(mine):
            each.advance(c.NEVER - 1)
            own = None if requests.shared is None else tuple(requests.shared[r] for r in mine)
            load = replace(requests, prompt=requests.prompt[mine], output=requests.output[mine], shared=own)
            served.append(each.served(load))
            shares.append(mine)
    return served, shares
