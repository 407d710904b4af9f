"""Which host nodes communicate: by the meaning of the operator, not by the name of a kernel.

One communication is often recorded by several nodes inside each other: a functional collective, the c10d operator
it calls, ``record_param_comms``, and an annotation of the backend (``nccl:…``, ``gloo:…``). It becomes one
`Communication`, that of the c10d operator where there is one; the others add what it lacks, such as the group.
"""

from __future__ import annotations

from collections.abc import Iterable

from armillary.convert.pytorch.communication import (
    BACKENDS,
    GROUP_NOTE,
    SYNCHRONOUS,
    Communication,
    backend_of,
    kind_of,
    of_nodes,
)
from armillary.convert.pytorch.host import HostNode, HostTrace

NOTE, TIMED = -1, 0
"""Levels of trust: a node that names only the group; an annotation of a backend. Operators have 1 to 3."""


def communications(host: HostTrace) -> list[Communication]:
    """Return the communications of a rank in the order in which they were issued."""
    index = {node.id: at for at, node in enumerate(host.nodes)}
    level: dict[int, tuple[int, str]] = {}
    for at, node in enumerate(host.nodes):
        found = _level(node)
        if found:
            level[at] = found
    # Nodes that record the same communication share an outermost communicating node: one tree of them.
    root: dict[int, int] = {}
    trees: dict[int, list[int]] = {}
    for at in level:
        root[at] = top = _outermost(at, host, index, level, root)
        trees.setdefault(top, []).append(at)
    called = _called_backends(trees.values(), level, host)
    result = []
    for members in trees.values():
        # Within a tree the most trusted nodes stand for the communication.
        best = max(level[at][0] for at in members)
        chosen = [at for at in members if level[at][0] == best]
        # A group note alone issues nothing, and an annotation that only times a call serves `match_events` instead.
        if best == NOTE or (best == TIMED and backend_of(host.nodes[members[0]]) in called):
            continue
        # The c10d operators of a coalesced functional collective are several; one inside another is one.
        same = set(chosen)
        chosen = [at for at in chosen if not _inside(at, host, index, same)]
        for at in chosen:
            # Each of several chosen nodes takes only the nodes inside it; a single one takes the whole tree.
            own = (
                members if len(chosen) == 1 else [at, *(m for m in members if _inside(m, host, index, {at}))]
            )
            path = tuple(host.nodes[above].name for above in _ancestors(at, host, index))
            result.append(of_nodes(at, host.nodes[at], level[at][1], [host.nodes[m] for m in own], path))
    return sorted(result, key=lambda made: made.node)


def _called_backends(
    trees: Iterable[list[int]], level: dict[int, tuple[int, str]], host: HostTrace
) -> frozenset[str]:
    """Return the backends whose annotations only time what operators issue.

    A backend that works on threads of its own annotates there, so an annotation alone is the time of a call
    elsewhere, unless all calls are known to be another backend's.
    """
    for members in trees:
        inside = [backend_of(host.nodes[at]) for at in members if level[at][0] == TIMED]
        if max(level[at][0] for at in members) > TIMED and not any(
            backend in SYNCHRONOUS for backend in inside
        ):
            return frozenset(BACKENDS) - SYNCHRONOUS
    return frozenset()


def _level(node: HostNode) -> tuple[int, str] | None:
    """Return the level of trust of a node and the kind of its communication; None if it does not communicate."""
    # After the note, the most trusted first: the schema of a c10d operator names every argument, while
    # functional collectives and ``record_param_comms`` repeat the call with less.
    if node.name.startswith(GROUP_NOTE):
        return NOTE, ""
    space, _, name = node.name.rpartition("::")
    if space == "c10d":
        kind = kind_of(name)
        return (3, kind) if kind else None
    if space.endswith(("c10d_functional", "c10d_functional_autograd")):
        # ``_wrap_tensor_autograd`` wraps a result and moves nothing.
        kind = None if name.startswith("_wrap") else kind_of(name)
        return (2, kind) if kind else None
    if node.name == "record_param_comms":
        kind = kind_of(_collective_name(node))
        return (1, kind) if kind else None
    backend, colon, name = node.name.partition(":")
    if colon and backend in BACKENDS:
        # ``nccl:send 0->1`` names the ends of a message behind the kind.
        kind = kind_of(name.split(" ", maxsplit=1)[0])
        return (TIMED, kind) if kind else None
    return None


def _collective_name(node: HostNode) -> str:
    named = node.extra.get("collective_name")
    if isinstance(named, str) and named:
        return named
    return next((value for value in node.inputs if isinstance(value, str)), "")


def _outermost(
    at: int, host: HostTrace, index: dict[int, int], level: dict[int, tuple[int, str]], root: dict[int, int]
) -> int:
    top = at
    for above in _ancestors(at, host, index):
        # Parents come first, so the tree of a node above is known already.
        if above in root:
            return root[above]
        if above in level:
            top = above
    return top


def _ancestors(at: int, host: HostTrace, index: dict[int, int]) -> list[int]:
    found: list[int] = []
    here = at
    # A damaged trace may have parents in a circle. An honest one has them before their children, and no
    # stack of a thousand operators.
    while len(found) < 1000:
        above = index.get(host.nodes[here].parent)
        if above is None or above >= here:
            break
        found.append(above)
        here = above
    return found


def _inside(at: int, host: HostTrace, index: dict[int, int], others: set[int]) -> bool:
    return bool(others) and any(above in others for above in _ancestors(at, host, index))
