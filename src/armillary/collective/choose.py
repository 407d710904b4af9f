"""Which algorithm a dimension takes where none is named: the one that fits its wiring, or the fastest."""

from __future__ import annotations

from armillary.base.portable import log2
from armillary.collective import in_switch
from armillary.collective.algorithms import (
    ROOTED,
    algorithms_for,
    find_algorithm,
    known_operation,
    rounds_for,
)
from armillary.collective.load import load
from armillary.platform.dimension_topologies import TOPOLOGIES
from armillary.platform.network import InNetwork


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
            # The switch may add up more slowly than its ports deliver.
            volume = fullest = max(volume, in_switch.reduced(operation, n, in_network, bandwidth))
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
