"""Move real numbers along sends, and hold them to what links and data allow."""

from __future__ import annotations

from armillary.base.jit import njit, use

hold = use("armillary.collective.synthesis.event_kernel").hold


@njit
def check(
    edge, chunk, start, source, target, path_first, path, duration, latency, after, chunks, free, since
):
    """Return the first send that has nothing to send, a busy link, or a target that has it already; -1: all are right.

    `since` (NPUs, chunks) is when each has each chunk, -1 for not; it and `free`, of the links, are updated.
    """
    for i in range(len(edge)):
        w, c, now = edge[i], chunk[i], start[i]
        has = since[source[w] * chunks + c]
        first = path_first[w]
        if has < 0 or has > now or since[target[w] * chunks + c] >= 0:
            return i
        head = now
        # Every link of the path must be free when the head comes.
        for j in range(first, path_first[w + 1]):
            if free[path[j]] > head:
                return i
            head += latency[path[j]]
        arrived = hold(free, path, first, path_first[w + 1], duration, latency, now)
        since[target[w] * chunks + c] = arrived + after
    return -1


@njit
def gather(edge, chunk, source, target, chunks, value):
    """Copy numbers along an all-gather; `value` is (NPUs, chunks)."""
    for i in range(len(edge)):
        w, c = edge[i], chunk[i]
        value[target[w] * chunks + c] = value[source[w] * chunks + c]


@njit
def scatter(edge, chunk, source, target, chunks, value):
    """Add numbers along an all-gather run backwards: what a target has, its source adds to its own."""
    # Backwards in time: the last send is the first addition.
    for i in range(len(edge) - 1, -1, -1):
        w, c = edge[i], chunk[i]
        value[source[w] * chunks + c] += value[target[w] * chunks + c]
