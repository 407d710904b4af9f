"""Names of collectives, their algorithms and the schedulers of their chunks: the list that all others read.

What stands behind a name is registered in `armillary.collective.algorithms` and
`armillary.collective.chunk_order.choose`; other packages add to both by entry points.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.extension import ExtensionPoint

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""What ASTRA-sim runs."""
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
"""Of equally fast algorithms ``auto`` takes the first in this order."""
ASTRA_SIM_ALGORITHMS = tuple(name for each in BUILT_IN for name in each.astra_sim)
"""What ASTRA-sim runs; some may end in a window."""
WINDOWED = tuple(name for each in BUILT_IN if each.window for name in each.astra_sim)
CHOSEN = ("natural", "auto")
"""Ways to choose an algorithm."""
ALGORITHMS = ExtensionPoint(
    "armillary.collectives", "collective algorithm",
    tuple(dict.fromkeys((*(each.name for each in BUILT_IN), *ASTRA_SIM_ALGORITHMS, *CHOSEN))),
)  # fmt: skip
"""What a study may say; some may end in a window besides."""
ALIASES = {other: each.name for each in BUILT_IN for other in each.others} | {
    "rabenseifner": "halvingDoubling"
}
"""Other names of algorithms; that of an algorithm counts only where that is none of the choices."""

CHUNK_ORDERS = ExtensionPoint(
    "armillary.chunk_orders", "chunk scheduler",
    ("baseline", "round-robin", "themis", "themis-flex", "online-greedy", "auto", "optimal"),
)  # fmt: skip


def spelled(name: str) -> str:
    """Return a name without what people write differently: capital letters, hyphens, underscores and spaces."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
