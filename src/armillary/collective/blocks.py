"""The data behind `Rounds`: which blocks every message carries, what members start and must end with.

D is cut into `parts` equal blocks. Vectors (all-reduce, reduce-scatter, broadcast, reduce) and the whole of a
gather or scatter number them 0 … parts-1; member i of n owns the i-th n-th of them. In an all-gather, block
``owner * parts + k`` is the k-th of its owner's contribution; in an all-to-all, ``origin * parts + k`` the k-th of
what its origin sends, the i-th n-th of which goes to member i. A barrier carries nothing.

Nothing here bears on time, and nothing of it is built unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from armillary.collective import hypercube, in_switch, pipelined, trees
from armillary.collective.rounds import Rounds

Blocks = tuple[int, ...]
Messages = list[Blocks]
"""The blocks of every message of one round, in the order of its columns."""


def parts(rounds: Rounds) -> int:
    """Return how many blocks D is cut into."""
    n = rounds.n
    split_by_members = rounds.operation in ("reduce-scatter", "all-to-all", "gather", "scatter")
    if rounds.algorithm == "ring":
        return 2 if rounds.operation == "all-gather" else 2 * n
    if rounds.algorithm in ("doubleBinaryTree", "chain"):
        return 2 * rounds.chunks
    if rounds.algorithm == "scatterAllGather":
        return (n - 1) * rounds.chunks
    if rounds.algorithm == "in-switch":
        return in_switch.parts(rounds)
    if split_by_members:
        return n
    if rounds.operation != "all-reduce":
        return 1
    core = len(hypercube.core(n))
    return {"direct": n, "halvingDoubling": core, "rabenseifner": max(core, 2)}.get(rounds.algorithm, 1)


def start(rounds: Rounds, member: int) -> Blocks:
    """Return the blocks that `member` holds before the first round."""
    count = parts(rounds)
    if rounds.operation in ("broadcast", "scatter"):
        return tuple(range(count)) if member == rounds.root else ()
    if rounds.operation == "gather":
        return _own(rounds, member)
    first = member * count if rounds.operation in ("all-gather", "all-to-all") else 0
    return tuple(range(first, first + count))


def end(rounds: Rounds, member: int) -> Blocks:
    """Return the blocks that `member` must hold, complete, after the last round."""
    n, count = rounds.n, parts(rounds)
    if rounds.operation in ("reduce", "gather") and member != rounds.root:
        return ()
    if rounds.operation in ("reduce-scatter", "scatter"):
        return _own(rounds, member)
    if rounds.operation == "all-to-all":
        return tuple(origin * count + k for origin in range(n) for k in _own(rounds, member))
    return tuple(range(n * count if rounds.operation == "all-gather" else count))


def blocks(rounds: Rounds) -> Iterator[Messages]:
    """Yield the blocks of every message, round by round, repeated rounds one by one.

    Raises:
        ValueError: a barrier, whose messages carry nothing.
    """
    if rounds.operation == "barrier":
        raise ValueError("the messages of a barrier carry no blocks")
    yield from _MAKERS[rounds.algorithm](rounds)


def _own(rounds: Rounds, member: int) -> Blocks:
    each = parts(rounds) // rounds.n
    return tuple(range(member * each, member * each + each))


def _ring(rounds: Rounds) -> Iterator[Messages]:
    """Half 0 of everything goes to the next member, half 1 to the one before."""
    n, operation = rounds.n, rounds.operation
    if operation == "all-to-all":
        yield from _ring_all_to_all(n)
        return
    for first in {"all-reduce": (1, 0), "reduce-scatter": (1,)}.get(operation, (0,)):
        for k in range(first, n - 1 + first):
            yield [((i - way * k) % n * 2 + half,) for i in range(n) for half, way in enumerate((1, -1))]


def _ring_all_to_all(n: int) -> Iterator[Messages]:
    for hop in range(n // 2):
        messages = []
        for i in range(n):
            for half, way in enumerate((1, -1)):
                origin = (i - way * hop) % n
                message: list[int] = []
                for distance in range(hop + 1, n // 2 + 1):
                    first = origin * 2 * n + (origin + way * distance) % n * 2
                    message += (first + half,) if 2 * distance == n else (first, first + 1)
                messages.append(tuple(message))
        yield messages


def _direct(rounds: Rounds) -> Iterator[Messages]:
    n, operation, root = rounds.n, rounds.operation, rounds.root
    others = [(root + k) % n for k in range(1, n)]
    if operation in ("broadcast", "reduce"):
        yield [(0,) for _ in others]
    elif operation in ("gather", "scatter"):
        yield [(other,) for other in others]
    elif operation == "all-to-all":
        yield [(i * n + (i + k) % n,) for i in range(n) for k in range(1, n)]
    if operation in ("all-reduce", "reduce-scatter"):
        yield [((i + k) % n,) for i in range(n) for k in range(1, n)]
    if operation in ("all-reduce", "all-gather"):
        yield [(i,) for i in range(n) for k in range(1, n)]


def _pairwise(rounds: Rounds) -> Iterator[Messages]:
    n = rounds.n
    for k in range(1, n):
        yield [(i * n + (i + k) % n,) for i in range(n)]


def _hypercube(rounds: Rounds) -> Iterator[Messages]:
    n, operation = rounds.n, rounds.operation
    aside, owned = hypercube.folded(n).tolist(), hypercube.owned(n)
    everything = tuple(range(parts(rounds)))
    if operation == "all-reduce":
        owned = [(g,) for g in range(len(owned))]
    if aside and rounds.algorithm == "rabenseifner":
        half = len(everything) // 2
        yield [everything[:half]] * len(aside) + [everything[half:]] * len(aside)
        yield [everything[half:]] * len(aside)
    elif aside:
        yield [(m,) for m in aside] if operation == "all-gather" else [everything] * len(aside)
    if operation != "all-gather":
        for step in hypercube.distances(n):
            yield _sides(owned, step, step)
    if operation != "reduce-scatter":
        for step in reversed(hypercube.distances(n)):
            yield _sides(owned, step, 0)
    if aside and operation == "all-gather":
        yield [tuple(b for b in range(n) if b != m) for m in aside]
    elif aside:
        yield [(m,) for m in aside] if operation == "reduce-scatter" else [everything] * len(aside)


def _sides(owned: list[Blocks], step: int, differ: int) -> Messages:
    """Return for each g the blocks owned by all b with ``(b ^ g) % (2 * step) == differ``."""
    each = range(len(owned))
    return [tuple(x for b in each if (b ^ g) % (2 * step) == differ for x in owned[b]) for g in each]


def _recursive_doubling(rounds: Rounds) -> Iterator[Messages]:
    n = rounds.n
    if rounds.operation == "all-reduce":
        for part in rounds.expanded():
            yield [(0,)] * len(part.moves)
    elif n & (n - 1):
        for k in range((n - 1).bit_length()):
            yield [tuple((i + j) % n for j in range(min(1 << k, n - (1 << k)))) for i in range(n)]
    else:
        for step in hypercube.distances(n):
            yield [tuple(range(i // step * step, i // step * step + step)) for i in range(n)]


def _binomial(rounds: Rounds) -> Iterator[Messages]:
    n = rounds.n
    if rounds.operation not in ("gather", "scatter"):
        for part in rounds.expanded():
            yield [(0,)] * len(part.moves)
        return
    down = trees.branches(n)
    for _, child, below in down if rounds.operation == "scatter" else reversed(down):
        spans = zip(child.tolist(), below.tolist(), strict=True)
        yield [tuple((v + k + rounds.root) % n for k in range(size)) for v, size in spans]


def _double_tree(rounds: Rounds) -> Iterator[Messages]:
    for t in range(rounds.count):
        _, part = trees.wave(rounds.operation, rounds.n, rounds.root, rounds.chunks, t)
        yield [(block,) for block in part.tolist()]


def _pipelined(rounds: Rounds) -> Iterator[Messages]:
    given = rounds.algorithm, rounds.operation, rounds.n, rounds.root, rounds.chunks
    for part in pipelined.blocks(*given):
        yield [(block,) for block in part.tolist()]


_MAKERS: dict[str, Callable[[Rounds], Iterator[Messages]]] = {
    "ring": _ring,
    "direct": _direct,
    "pairwise": _pairwise,
    "halvingDoubling": _hypercube,
    "rabenseifner": _hypercube,
    "recursiveDoubling": _recursive_doubling,
    "binomialTree": _binomial,
    "doubleBinaryTree": _double_tree,
    "chain": _pipelined,
    "scatterAllGather": _pipelined,
    "in-switch": in_switch.blocks,
}
