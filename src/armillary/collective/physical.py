"""Which algorithms exist for which operation, the topology's natural one, and the fastest one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from armillary.collective import hypercube, in_switch, symmetric, trees
from armillary.collective.load import load
from armillary.collective.rounds import Moves, Round, Rounds
from armillary.errors import InputError, nearest, one_of
from armillary.platform.model import InNetwork

OPERATIONS = (
    "all-reduce", "all-gather", "reduce-scatter", "reduce-scatter-block", "all-to-all",
    "broadcast", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip
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
        chunks: Parts that a double binary tree is pipelined in; None: four per level, which
            costs a quarter more than the bytes need. Of in-switch, among members at one switch; None: four.
            Others ignore it.

    Returns:
        The rounds; the same object for the same arguments.

    Raises:
        InputError: an unknown name, an operation that the algorithm does not have, or a bad number.
    """
    exist = algorithms_for(operation)
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
    return _rounds(algorithm, plain(operation), n, root, chunks if algorithm == "doubleBinaryTree" else None)


@lru_cache(maxsize=512)
def _rounds(algorithm: str, operation: str, n: int, root: int, chunks: int | None) -> Rounds:
    if algorithm == "doubleBinaryTree":
        chunks = chunks or 4 * trees.depth(n)
        rounds = trees.double(operation, n, root, chunks)
    else:
        chunks, rounds = 1, _MAKERS[algorithm](operation, n, root)
    return Rounds(algorithm, operation, n, root, rounds, chunks)


def _direct(operation: str, n: int, root: int) -> tuple[Round, ...]:
    return trees.star(operation, n, root) if operation in ROOTED else symmetric.direct(operation, n)


def _recursive_doubling(operation: str, n: int, root: int) -> tuple[Round, ...]:
    if operation == "barrier" or (operation == "all-gather" and n & (n - 1)):
        return symmetric.dissemination(operation, n)
    return hypercube.recursive_doubling(operation, n)


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
    """Return the algorithm that fits `topology`.

    Ring on Ring, Torus and Mesh; direct on FullyConnected; halving-doubling on a Switch, or ring where n
    is no power of two (folding would double the bytes). Rooted operations take the binomial tree, an
    all-to-all is direct on a Switch, and a barrier there is a dissemination.

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
) -> str:
    """Return the algorithm with the least ``hops * latency + volume * size / bandwidth`` ("auto").

    Args:
        topology: Name of the topology that the `n` members fill.
        operation: One of `OPERATIONS`.
        n: Number of members.
        size: D in bytes.
        latency_ns: Latency of one link in ns.
        bandwidth: One-way bandwidth of an NPU, bytes per ns.
        root: Root of a rooted operation.
        in_network: What the switch can do; None: in-switch is not among the choices.

    Returns:
        Its name; of equally fast ones the natural one, else the first of `ALGORITHMS`.

    Raises:
        InputError: there is no such operation.
    """
    first = natural(topology, operation, n)

    def cost(name: str) -> tuple[float, bool]:
        found = load(rounds_for(name, operation, n, root), topology, n)
        own = 0.0
        volume = float(found.volume)
        if name == "in-switch" and in_network:
            own, volume = (
                in_network.latency,
                max(volume, in_switch.reduced(operation, n, in_network, bandwidth)),
            )
        return found.hops * latency_ns + own + volume * size / bandwidth, name != first

    names = algorithms_for(operation)
    return min((name for name in names if in_network or name != "in-switch"), key=cost)


def plain(operation: str) -> str:
    """Return the operation whose schedules an operation has."""
    return "reduce-scatter" if operation == "reduce-scatter-block" else operation
