"""Routers: which replica gets a request.

Some look at no replica: what each gets is known before anything is served (`shares`). The others are asked when a
request comes (`choose`), with what the replicas have by then (`armillary.serving.fleet`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.serving.replica import Replica
from armillary.serving.requests import Ints, Requests

ROUTERS = ("round-robin", "least-loaded", "session", "prefix")
LEAST_FOUND = 0.3
"""Share of a prompt that a replica must have, so that a request goes there rather than where the fewest are
(``--cache-threshold`` of SGLang's gateway)."""
MOST_APART, MOST_TIMES = 64, 1.5
"""By how many requests, and by what factor, the fullest replica may exceed the emptiest before what is in their caches
counts no more (``--balance-abs-threshold``, ``--balance-rel-threshold``)."""


def router_notes(router: str, requests: Requests, replicas: int, cached: bool) -> list[str]:
    """Return what a router assumes, a sentence each.

    Args:
        router: Its name.
        requests: The load.
        replicas: How many there are.
        cached: Whether they keep blocks for requests that begin alike.

    Raises:
        InputError: there is no such router, or it cannot serve the load.
    """
    if router not in ROUTERS:
        raise InputError(f"router {router}: expected {one_of(ROUTERS)}{nearest(router, ROUTERS)}")
    follows = requests.follows is not None
    if router == "session" and not follows:
        raise InputError("router session: no request of the load follows another, expected round-robin")
    if router == "prefix" and not (cached and requests.alike):
        what = "no requests of the load begin alike" if cached else "no blocks are kept"
        raise InputError(f"router prefix: {what}, expected least-loaded")
    if router != "round-robin" and requests.clients:
        raise InputError(
            f"router {router}: clients of a closed loop stay with a replica, expected an open load"
        )
    if replicas == 1:
        return [] if router == "round-robin" else [f"router {router} has no effect: there is one replica"]
    notes = {
        "round-robin": "requests that follow others go to replicas in turn, away from the blocks of those; router "
        "session keeps a session together",
        "least-loaded": "a request goes to the replica with the fewest that are not done, which the router knows at "
        "once",
        "session": "sessions go to replicas in turn, and stay there",
        "prefix": "a request goes to the replica whose cache has most of its prompt, if that is more than "
        f"{100 * LEAST_FOUND:g} %, and else, or if replicas are more than {MOST_APART} requests and a factor of "
        f"{MOST_TIMES:g} apart, to that with the fewest that are not done; the router knows both at once",
    }
    return [notes[router]] if follows or router != "round-robin" else []


def shares(requests: Requests, replicas: int, router: str) -> list[Ints] | None:
    """Return the numbers of the requests of each replica that has any; None: the router looks at the replicas."""
    follows = requests.follows
    if follows is not None and router == "session":
        used = follows.sessions % replicas
        return [np.flatnonzero(used == at) for at in range(int(used.max()) + 1)]
    if replicas > 1 and (router != "round-robin" or follows is not None):
        return None
    used_by = min(replicas, requests.clients or len(requests))
    return [np.arange(at, len(requests), used_by) for at in range(used_by)]


def choose(
    router: str, r: int, fleet: Sequence[Replica] | Mapping[int, Replica], up: Sequence[int], last: int
) -> int:
    """Return the replica that gets a request.

    Args:
        router: Its name; of session: where the first of it goes.
        r: The request.
        fleet: Replicas by number.
        up: Numbers of those that take requests, ascending; there is one.
        last: The one that was chosen before.
    """
    order = [k for k in up if k > last] + [k for k in up if k <= last]
    if router in ("round-robin", "session"):
        return order[0]
    fewest = min(order, key=lambda k: fleet[k].has)
    if router == "prefix":
        many = [fleet[k].has for k in up]
        if max(many) - min(many) <= MOST_APART or max(many) <= MOST_TIMES * min(many):
            found = {k: fleet[k].found(r) for k in order}
            best = min(order, key=lambda k: (-found[k], fleet[k].has))
            if found[best] > LEAST_FOUND * fleet[best].prompt(r):
                return best
    return fewest
