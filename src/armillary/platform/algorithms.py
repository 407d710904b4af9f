"""Names of collective algorithms, as ASTRA-sim files and native files write them."""

from __future__ import annotations

import re

from armillary.errors import nearest
from armillary.platform.document import Document, KeyPath
from armillary.platform.model import Algorithm

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""What ASTRA-sim runs."""
PHYSICAL_COLLECTIVES = (
    *COLLECTIVES,
    *("all-to-all-v", "broadcast", "reduce", "gather", "scatter", "barrier", "reduce-scatter-block"),
)
ALGORITHMS = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
)
"""What ASTRA-sim runs; direct and oneDirect may end in a window."""
PHYSICAL_ALGORITHMS = (*ALGORITHMS, "recursiveDoubling", "rabenseifner", "binomialTree", "natural", "auto")


def parse_algorithm(name: str) -> Algorithm | None:
    """Return the algorithm a name such as ``ring`` or ``direct12`` stands for, or None if there is none."""
    match = re.fullmatch(r"(oneDirect|direct)([0-9]{1,9})", name)
    if match:
        window = int(match[2])
        return Algorithm(match[1], window) if window else None
    return Algorithm(name) if name in ALGORITHMS else None


def read_algorithms(
    document: Document, path: KeyPath, names: object, dimensions: int
) -> tuple[Algorithm, ...]:
    """Return the algorithms of one collective, one per dimension, possibly fewer.

    Raises:
        InputError: Not a list, a name is unknown, or there are more names than dimensions.
    """
    if not isinstance(names, list | tuple) or not names:
        document.reject(path, names, 'a list of algorithms, one per dimension, e.g. ["ring"]')
    result = []
    for position, name in enumerate(names):
        algorithm = parse_algorithm(name) if isinstance(name, str) else None
        if algorithm is None:
            expected = (
                f"an algorithm: {', '.join(ALGORITHMS)} (direct and oneDirect may end in a window, direct8)"
            )
            document.reject((*path, position), name, expected, nearest(str(name), ALGORITHMS))
        result.append(algorithm)
    if len(result) > dimensions:
        raise document.error(
            path, f"lists {len(result)} algorithms, expected at most {dimensions}, one per network dimension"
        )
    return tuple(result)
