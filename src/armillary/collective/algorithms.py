"""The registry of collective algorithms: from a name to its definition, and to the rounds among some members."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import show
from armillary.collective.algorithm import CollectiveAlgorithm
from armillary.collective.demand import OPERATIONS, plain
from armillary.collective.rounds import Moves, Round, Rounds
from armillary.platform.collectives import ALGORITHMS, known_name

DEFINITIONS = {
    "ring": "armillary.collective.symmetric:Ring",
    "direct": "armillary.collective.symmetric:Direct",
    "halvingDoubling": "armillary.collective.hypercube:HalvingDoubling",
    "recursiveDoubling": "armillary.collective.hypercube:RecursiveDoubling",
    "rabenseifner": "armillary.collective.hypercube:Rabenseifner",
    "binomialTree": "armillary.collective.trees:BinomialTree",
    "doubleBinaryTree": "armillary.collective.trees:DoubleBinaryTree",
    "chain": "armillary.collective.pipelined:Chain",
    "scatterAllGather": "armillary.collective.pipelined:ScatterAllGather",
    "pairwise": "armillary.collective.symmetric:Pairwise",
    "in-switch": "armillary.collective.in_switch:InSwitch",
}
"""Name -> class of each that is built in; the names are those of `platform.collectives.BUILT_IN`, in their order."""
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Operations with a root."""


@lru_cache(maxsize=128)
def find_algorithm(name: str) -> CollectiveAlgorithm:
    """Return the algorithm of a name.

    Raises:
        InputError: there is none of that name, or what another package registers is none.
    """
    found = ALGORITHMS.load_class(name, DEFINITIONS, CollectiveAlgorithm)
    # A constructor of another package may raise anything: the guard names the algorithm.
    with ALGORITHMS.guard(name):
        made = found()
    if unknown := [each for each in made.operations if each not in OPERATIONS]:
        raise InputError(
            f"collective algorithm '{name}': operations: got '{unknown[0]}', expected some of {', '.join(OPERATIONS)}"
        )
    return made


def known_operation(operation: str) -> str:
    """Return the operation that is modelled for `operation`, see `plain`.

    Raises:
        InputError: there is no such operation.
    """
    if operation not in OPERATIONS:
        hint = nearest(operation, OPERATIONS)
        raise InputError(f"unknown collective operation '{operation}': expected {one_of(OPERATIONS)}{hint}")
    return plain(operation)


def algorithms_for(operation: str) -> tuple[str, ...]:
    """Return the built-in algorithms that exist for `operation`.

    Raises:
        InputError: there is no such operation.
    """
    operation = known_operation(operation)
    return tuple(name for name in DEFINITIONS if operation in find_algorithm(name).operations)


def rounds_for(name: str, operation: str, n: int, root: int = 0, chunks: int | None = None) -> Rounds:
    """Return `operation` among `n` members as rounds.

    Args:
        name: Name of an algorithm, built in or of another package.
        operation: One of `OPERATIONS`.
        n: Number of members, at least 2.
        root: The root of a rooted operation; for others, where a tree has its top.
        chunks: Parts that the algorithm cuts D into; None: `CollectiveAlgorithm.usual_chunks`. Those that do not cut
            ignore it.

    Returns:
        The rounds; the same object for the same arguments.

    Raises:
        InputError: an unknown name, an operation that the algorithm does not have, or a bad number.
    """
    # Not `algorithms_for` yet, which loads them all.
    known_operation(operation)
    name = known_name(name, ALGORITHMS)
    found = find_algorithm(name)
    if plain(operation) not in found.operations:
        raise InputError(f"{name} has no {operation}: expected {one_of(algorithms_for(operation))}")
    if n < 2:
        raise InputError(f"{name} {operation} over {n} member(s): a collective needs at least 2")
    with ALGORITHMS.guard(name):
        problem = found.refuses(plain(operation), n)
    if problem:
        raise InputError(f"{name} {operation} over {n} members: {problem}")
    if not 0 <= root < n:
        raise InputError(f"{name} {operation} over {n} members: root {root}, expected 0 to {n - 1}")
    if chunks is not None and chunks < 1:
        raise InputError(f"{name} {operation}: {chunks} chunks, expected at least 1")
    # The root is part of the cache key below: operations without one share a single entry.
    root = root if found.any_root or operation in ROOTED else 0
    usual = found.usual_chunks(n)
    # Algorithms that do not cut D always have one part, whatever was requested.
    return _rounds(name, plain(operation), n, root, 1 if usual is None else chunks or usual)


@lru_cache(maxsize=512)
def _rounds(name: str, operation: str, n: int, root: int, chunks: int) -> Rounds:
    found = find_algorithm(name)
    with ALGORITHMS.guard(name):
        made = tuple(found.rounds(operation, n, root, chunks))
    if wrong := [each for each in made if not isinstance(each, Round)]:
        raise InputError(f"collective algorithm '{name}': rounds: got {show(wrong[0])}, expected a Round")
    return Rounds(name, operation, n, root, made, chunks, found.trees(n), found.around)


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
    # A member's part for itself never moves.
    source, target = np.nonzero(given * (1 - np.eye(n, dtype=given.dtype)))
    moves = Moves.of(source, target, given[source, target])
    return Rounds("direct", "all-to-all-v", n, 0, (Round(n, moves),) if len(moves) else ())
