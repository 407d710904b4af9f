"""The registry of collective algorithms: from a name to rounds among members, and the choice where none is named."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import show
from armillary.base.portable import log2
from armillary.collective.demand import OPERATIONS, plain
from armillary.collective.load import load
from armillary.collective.rounds import CollectiveAlgorithm, IntArray, Moves, Round, Rounds
from armillary.platform.collectives import ALGORITHMS, known_name
from armillary.platform.network import TOPOLOGIES, InNetwork

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


def add_algorithm(name: str, algorithm: type[CollectiveAlgorithm]) -> None:
    """Add an algorithm in this process alone; packages declare theirs as entry points of ``armillary.collectives``.

    Raises:
        InputError: the name is taken, or it is no subclass of `CollectiveAlgorithm` that can be made.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, CollectiveAlgorithm)):
        raise InputError(
            f"collective algorithm '{name}': got {show(algorithm)}, expected a class of algorithms"
        )
    # Here, and not when a simulation first needs it.
    with ALGORITHMS.guard(name):
        algorithm()
    ALGORITHMS.add(name, algorithm)


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
    return rounds_of_messages(n, source, target, given[source, target])


def rounds_of_messages(n: int, source: IntArray, target: IntArray, sizes: IntArray) -> Rounds:
    """Return an all-to-all-v of `n` members as `rounds_alltoallv` does, given its messages alone.

    A matrix has n squared entries, of which those of a few members that send fill few.

    Args:
        n: Members.
        source: Sender of each message, (messages).
        target: Receiver, another one, (messages); messages of one pair become one.
        sizes: Bytes, at least 0, (messages).
    """
    pairs, which = np.unique(source * n + target, return_inverse=True)
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, which, np.asarray(sizes, np.int64))
    some = np.flatnonzero(total)
    moves = Moves.of(pairs[some] // n, pairs[some] % n, total[some])
    return Rounds("direct", "all-to-all-v", n, 0, (Round(n, moves),) if len(moves) else ())


def natural(topology: str, operation: str, n: int) -> str:
    """Return the algorithm that fits `topology`, whatever the size.

    What the topology names: ring on Ring, Torus and Mesh, direct on FullyConnected. Where it names none, as on a
    Switch: halving-doubling, or ring where n is no power of two (folding would double the bytes); an all-to-all is
    direct, and a barrier a dissemination. Rooted operations take the binomial tree, which is right for few bytes only:
    where the size is known, ask `choose`.

    Raises:
        InputError: there is no such operation.
    """
    if operation in ROOTED:
        return "binomialTree"
    operation = known_operation(operation)
    if own := TOPOLOGIES[topology].natural:
        return own
    if operation == "all-to-all":
        return "direct"
    if operation not in find_algorithm("halvingDoubling").operations:
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
        Its name; of equally fast ones the natural one, else the first of `platform.collectives.BUILT_IN`.

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
            from armillary.collective.in_switch import reduced

            # The switch may add up more slowly than its ports deliver.
            volume = fullest = max(volume, reduced(operation, n, in_network, bandwidth))
            own = in_network.latency + endpoint_delay
        moving = (volume + (chunks - 1) * fullest) * size / bandwidth
        return found.hops * latency_ns + own + moving, name != first

    # Some algorithms are not tried beyond a number of members, see `most_members`.
    names = [name for name in algorithms_for(operation) if n <= (find_algorithm(name).most_members or n)]
    return min((name for name in names if in_network or name != "in-switch"), key=cost)


MOST_PARTS = 512
"""Parts of a chunk, at most: a chain of 64 is then within 12 % of what its bytes take."""


def parts_for(
    name: str, topology: str, n: int, size: float, latency_ns: float, bandwidth: float, chunks: int = 1
) -> int | None:
    """Return the number of parts, a power of 2, that an algorithm should cut D into; None: its default.

    s parts take (s + d) · (D / (s · B) + latency), least at s = √(d · D / (B · latency)), where d are
    `CollectiveAlgorithm.ahead`. Chunks that follow each other are parts as well.
    """
    ahead = find_algorithm(name).ahead(n)
    if ahead is None:
        return None
    # Latency of a hop between two NPUs, e.g. two links through a switch.
    hop = latency_ns * TOPOLOGIES[topology].apart
    moving = ahead * size * chunks / bandwidth
    # log2 of a square root is half the log2. The cap avoids a division by a latency of 0.
    best = moving / hop if hop * MOST_PARTS**2 > moving else float(MOST_PARTS**2)
    return 1 << max(0, round(log2(max(best, 1.0)) / 2 - log2(chunks)))
