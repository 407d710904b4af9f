"""The routes of all pairs of nodes that exchange messages, in every stage of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.transport.network import Routes, Stage
from armillary.platform.topology.planes import joined
from armillary.platform.topology.routing import Paths

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
LinksOf = Mapping[tuple[int, int], tuple[int, ...]]


def routes_of(stages: Sequence[Stage], pairs: Ints, links_of: LinksOf) -> Routes:
    """Return the routes of all pairs in every stage; a pair that loses its last route keeps the former one.

    Pairs with a switch keep their links in `links_of`.

    Raises:
        InputError: a pair cannot reach each other from the start.
    """
    routes, before = Routes(), None
    npus = np.asarray((pairs < stages[0].topology.npus).all(axis=1))
    for stage in stages:
        try:
            paths = stage.paths(pairs[npus, 0], pairs[npus, 1])
        except InputError:
            if before is None:
                raise
            # Slow, pair by pair, but only in a stage that cuts some pair off.
            paths = _some_retained(stage, pairs[npus], before)
        routes.append(paths if npus.all() else _with_links(paths, pairs, npus, links_of))
        before = paths
    return routes


def _with_links(paths: Paths, pairs: Ints, npus: Bools, links_of: LinksOf) -> Paths:
    """Return the routes of all pairs from those of NPUs and the links of the others."""
    between = iter(range(int(npus.sum())))
    links = [
        paths[next(between)] if own else np.array(links_of[(a, b)], np.int64)
        for own, (a, b) in zip(npus.tolist(), pairs.tolist(), strict=True)
    ]
    return joined(links)


def _some_retained(stage: Stage, pairs: Ints, before: Paths) -> Paths:
    links_of, parts = [], stage.topology.planes
    for number, pair in enumerate(pairs):
        try:
            found = stage.paths(pair[:1], pair[1:])
            links_of += [found[part] for part in range(parts)]
        except InputError:
            # Its messages wait for what is down.
            links_of += [before[number * parts + part] for part in range(parts)]
    return joined(links_of)
