"""Names of collectives, their algorithms and the schedulers of their chunks: the list that all others read.

What stands behind a name is registered in `armillary.collective.algorithms` and
`armillary.collective.chunk_order.choose`; other packages add to both by entry points.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.extension import ExtensionPoint

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""Collectives that ASTRA-sim runs."""
PHYSICAL_COLLECTIVES = (
    *COLLECTIVES,
    *("all-to-all-v", "broadcast", "reduce", "gather", "scatter", "barrier", "reduce-scatter-block"),
)


@dataclass(frozen=True)
class AlgorithmName:
    """What an algorithm is called.

    Attributes:
        name: In studies, reports and Python.
        others: What other people call it; files may, too.
        astra_sim: What files of ASTRA-sim call it along one dimension and along all at once; none if it has none.
        window: Whether these may end in the number of messages in flight, ``direct8``.
    """

    name: str
    others: tuple[str, ...] = ()
    astra_sim: tuple[str, ...] = ()
    window: bool = False


BUILT_IN = (
    # The order is the tie rule of `auto`, see below: ring first, as it needs no power of two.
    AlgorithmName("ring", astra_sim=("ring", "oneRing")),
    AlgorithmName("direct", astra_sim=("direct", "oneDirect"), window=True),
    AlgorithmName("halvingDoubling", astra_sim=("halvingDoubling", "oneHalvingDoubling")),
    AlgorithmName("recursiveDoubling"),
    AlgorithmName("rabenseifner"),
    AlgorithmName("binomialTree", ("binomial",)),
    AlgorithmName("doubleBinaryTree", ("tree",), astra_sim=("doubleBinaryTree",)),
    AlgorithmName("chain"),
    AlgorithmName("scatterAllGather", ("van de Geijn",)),
    AlgorithmName("pairwise"),
    AlgorithmName("in-switch", ("NVLS", "SHARP")),
)
"""`auto` takes the first of equally fast algorithms in this order."""
ASTRA_SIM_ALGORITHMS = tuple(name for each in BUILT_IN for name in each.astra_sim)
"""What ASTRA-sim runs; some may end in a window."""
WINDOWED = tuple(name for each in BUILT_IN if each.window for name in each.astra_sim)
CHOSEN = ("natural", "auto")
"""Ways to choose an algorithm."""
ALGORITHMS = ExtensionPoint(
    "armillary.collectives", "collective algorithm",
    # dict.fromkeys drops the second "ring": both families list it, and the order of first mention stays.
    tuple(dict.fromkeys((*(each.name for each in BUILT_IN), *ASTRA_SIM_ALGORITHMS, *CHOSEN))),
)  # fmt: skip
"""Names that a study may use; some may also end in a window."""
# "rabenseifner" is both a name of its own and a common name of halving-doubling; ASTRA-sim's files have only
# the latter.
ALIASES = {other: each.name for each in BUILT_IN for other in each.others} | {
    "rabenseifner": "halvingDoubling"
}
"""Alias -> name. An alias that is itself one of the known names keeps its own meaning."""

CHUNK_ORDERS = ExtensionPoint(
    "armillary.chunk_orders", "chunk scheduler",
    ("baseline", "round-robin", "themis", "themis-flex", "online-greedy", "auto", "optimal"),
)  # fmt: skip


def spelled(name: str) -> str:
    """Return a name without what people write differently: capital letters, hyphens, underscores and spaces."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
