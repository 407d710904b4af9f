"""Which algorithms exist for which operation, the topology's natural one, and the fastest one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log2

import numpy as np
import numpy.typing as npt

from armillary.base.errors import InputError, nearest, one_of
from armillary.collective import hypercube, in_switch, pipelined, symmetric, trees
from armillary.collective.demand import OPERATIONS, plain
from armillary.collective.load import load
from armillary.collective.rounds import Moves, Round, Rounds
from armillary.platform.algorithms import known_name
from armillary.platform.network import InNetwork

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Operations with a root."""

_BOTH_WAYS = ("all-reduce", "all-gather", "reduce-scatter")
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "ring": (*_BOTH_WAYS, "all-to-all", "barrier"),
    "direct": (*_BOTH_WAYS, "all-to-all", "barrier", *ROOTED),
    "halvingDoubling": _BOTH_WAYS,
    "recursiveDoubling": ("all-reduce", "all-gather", "barrier"),
    "rabenseifner": ("all-reduce",),
    "binomialTree": (*ROOTED, "all-reduce", "barrier"),
    "doubleBinaryTree": ("all-reduce", "broadcast", "reduce"),
    "chain": ("broadcast", "reduce"),
    "scatterAllGather": ("broadcast", "reduce"),
    "pairwise": ("all-to-all",),
    "in-switch": _BOTH_WAYS,
}
"""Algorithm -> the operations it has."""


def algorithms_for(operation: str) -> tuple[str, ...]:
    """Return the algorithms that exist for `operation`.

    Raises:
        InputError: there is no such operation.
    """
    if operation not in OPERATIONS:
        hint = nearest(operation, OPERATIONS)
        raise InputError(f"unknown collective operation '{operation}': expected {one_of(OPERATIONS)}{hint}")
    operation = plain(operation)
    return tuple(name for name, operations in ALGORITHMS.items() if operation in operations)


def rounds_for(algorithm: str, operation: str, n: int, root: int = 0, chunks: int | None = None) -> Rounds:
    """Return `operation` among `n` members as rounds.

    Args:
        algorithm: One of `ALGORITHMS`.
        operation: One of `OPERATIONS`.
        n: Number of members, at least 2.
        root: The root of a rooted operation; for others, where a tree has its top.
        chunks: Parts that a double binary tree or a chain is pipelined in; None: four per level or member, which
            costs a quarter more than the bytes need. Of scatterAllGather, and of in-switch, among members at one
            switch; None: four. Others ignore it.

    Returns:
        The rounds; the same object for the same arguments.

    Raises:
        InputError: an unknown name, an operation that the algorithm does not have, or a bad number.
    """
    exist = algorithms_for(operation)
    algorithm = known_name(algorithm, ALGORITHMS)
    if algorithm not in ALGORITHMS:
        hint = nearest(algorithm, ALGORITHMS)
        raise InputError(f"unknown collective algorithm '{algorithm}': expected {one_of(ALGORITHMS)}{hint}")
    if algorithm not in exist:
        raise InputError(f"{algorithm} has no {operation}: expected {one_of(exist)}")
    if n < 2:
        raise InputError(f"{algorithm} {operation} over {n} member(s): a collective needs at least 2")
    if not 0 <= root < n:
        raise InputError(f"{algorithm} {operation} over {n} members: root {root}, expected 0 to {n - 1}")
    if chunks is not None and chunks < 1:
        raise InputError(f"{algorithm} {operation}: {chunks} chunks, expected at least 1")
    tree = algorithm in ("binomialTree", "doubleBinaryTree")
    root = root if tree or operation in ROOTED else 0
    if algorithm == "in-switch":
        return in_switch.rounds(plain(operation), n, (in_switch.star(n),), chunks or 4)
    return _rounds(algorithm, plain(operation), n, root, chunks if algorithm in IN_PARTS else None)


@lru_cache(maxsize=512)
def _rounds(algorithm: str, operation: str, n: int, root: int, chunks: int | None) -> Rounds:
    if algorithm in IN_PARTS:
        usual, make = IN_PARTS[algorithm]
        chunks = chunks or usual(n)
        rounds = make(operation, n, root, chunks)
    else:
        chunks, rounds = 1, _MAKERS[algorithm](operation, n, root)
    return Rounds(algorithm, operation, n, root, rounds, chunks)


def _direct(operation: str, n: int, root: int) -> tuple[Round, ...]:
    return trees.star(operation, n, root) if operation in ROOTED else symmetric.direct(operation, n)


def _recursive_doubling(operation: str, n: int, root: int) -> tuple[Round, ...]:
    if operation == "barrier" or (operation == "all-gather" and n & (n - 1)):
        return symmetric.dissemination(operation, n)
    return hypercube.recursive_doubling(operation, n)


IN_PARTS: dict[str, tuple[Callable[[int], int], Callable[[str, int, int, int], tuple[Round, ...]]]] = {
    "doubleBinaryTree": (lambda n: 4 * trees.depth(n), trees.double),
    "chain": (lambda n: 4 * (n - 1), pipelined.chain),
    "scatterAllGather": (lambda n: 4, pipelined.spread),
}
"""Algorithms that cut the vector into parts -> how many parts among n members if nothing is said, and the rounds."""

_MAKERS: dict[str, Callable[[str, int, int], tuple[Round, ...]]] = {
    "ring": lambda operation, n, root: symmetric.ring(operation, n),
    "direct": _direct,
    "halvingDoubling": lambda operation, n, root: hypercube.halving_doubling(operation, n),
    "recursiveDoubling": _recursive_doubling,
    "rabenseifner": lambda operation, n, root: hypercube.rabenseifner(n),
    "binomialTree": trees.binomial,
    "pairwise": lambda operation, n, root: symmetric.pairwise(n),
}


def rounds_alltoallv(matrix: npt.ArrayLike) -> Rounds:
    """Return an all-to-all in which member i sends ``matrix[i, j]`` bytes to member j, all at once.

    The fractions are bytes: evaluate it with D = 1. The diagonal does not matter.

    Raises:
        InputError: the matrix is not square, or has fewer than 2 rows or a negative or fractional size.
    """
    given = np.asarray(matrix)
    n = len(given) if given.ndim else 0
    if given.shape != (n, n) or n < 2:
        raise InputError(f"all-to-all-v: sizes of shape {given.shape}, expected n rows of n, n at least 2")
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise InputError("all-to-all-v: sizes must be whole numbers of bytes, at least 0")
    source, target = np.nonzero(given * (1 - np.eye(n, dtype=given.dtype)))
    moves = Moves.of(source, target, given[source, target])
    return Rounds("direct", "all-to-all-v", n, 0, (Round(n, moves),) if len(moves) else ())


def natural(topology: str, operation: str, n: int) -> str:
    """Return the algorithm that fits `topology`, whatever the size.

    Ring on Ring, Torus and Mesh; direct on FullyConnected; halving-doubling on a Switch, or ring where n
    is no power of two (folding would double the bytes). Rooted operations take the binomial tree, which is right for
    few bytes only: where the size is known, ask `choose`. An all-to-all is direct on a Switch, and a barrier there is a
    dissemination.

    Raises:
        InputError: there is no such operation.
    """
    if operation in ROOTED:
        return "binomialTree"
    exist = algorithms_for(operation)
    if topology in ("Ring", "Torus", "Mesh"):
        return "ring"
    if topology == "FullyConnected" or operation == "all-to-all":
        return "direct"
    if "halvingDoubling" not in exist:
        return "recursiveDoubling"
    return "ring" if n & (n - 1) else "halvingDoubling"


def choose(
    topology: str,
    operation: str,
    n: int,
    size: float,
    latency_ns: float,
    bandwidth: float,
    root: int = 0,
    in_network: InNetwork | None = None,
    *,
    chunks: int = 1,
    endpoint_delay: float = 0.0,
) -> str:
    """Return the algorithm with the least time on an idle network ("auto"), see `collective.load`.

    Args:
        topology: Name of the topology that the `n` members fill.
        operation: One of `OPERATIONS`.
        n: Number of members.
        size: D in bytes, of one chunk.
        latency_ns: Latency of one link in ns.
        bandwidth: One-way bandwidth of an NPU, bytes per ns.
        root: Root of a rooted operation.
        in_network: What the switch can do; None: in-switch is not among the choices.
        chunks: Chunks of `size` that follow each other.
        endpoint_delay: ns of every round besides.

    Returns:
        Its name; of equally fast ones the natural one, else the first of `ALGORITHMS`.

    Raises:
        InputError: there is no such operation.
    """
    first = natural(topology, operation, n)

    def cost(name: str) -> tuple[float, bool]:
        parts = parts_for(name, topology, n, size, latency_ns, bandwidth, chunks)
        rounds = rounds_for(name, operation, n, root, parts)
        found = load(rounds, topology, n)
        volume, fullest = float(found.volume), float(found.fullest)
        own = rounds.count * endpoint_delay
        if name == "in-switch" and in_network:
            volume = fullest = max(volume, in_switch.reduced(operation, n, in_network, bandwidth))
            own = in_network.latency + endpoint_delay
        moving = (volume + (chunks - 1) * fullest) * size / bandwidth
        return found.hops * latency_ns + own + moving, name != first

    names = [name for name in algorithms_for(operation) if n <= MOST_MEMBERS.get(name, n)]
    return min((name for name in names if in_network or name != "in-switch"), key=cost)


MOST_MEMBERS = {"chain": 512, "scatterAllGather": 128}
"""Members up to which an algorithm is among the choices: a chain of more is longer than a tree is deep, and in a
scatterAllGather of more a member has as many messages in each round."""

MOST_PARTS = 512
"""Parts of a chunk, at most: a chain of 64 is then within 12 % of what its bytes take."""


def parts_for(
    algorithm: str, topology: str, n: int, size: float, latency_ns: float, bandwidth: float, chunks: int = 1
) -> int | None:
    """Return into how many parts, a power of 2, a chain or scatterAllGather cuts D; None: other algorithms.

    s parts take (s + d) · (D / (s · B) + latency), least at s = √(d · D / (B · latency)), where d are the rounds that
    the first part is ahead of the last member. Chunks that follow each other are parts as well.
    """
    if algorithm not in ("chain", "scatterAllGather"):
        return None
    ahead = max(n - 2, 1) if algorithm == "chain" else 1
    hop = latency_ns * (2 if topology == "Switch" else 1)
    moving = ahead * size * chunks / bandwidth
    best = moving / hop if hop * MOST_PARTS**2 > moving else float(MOST_PARTS**2)
    return 1 << max(0, round(log2(max(best, 1.0)) / 2 - log2(chunks)))
