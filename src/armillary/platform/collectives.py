"""Names of collectives, of their algorithms and chunk schedulers, choices of fits, and groups of ranks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any

from armillary.base.document import Document
from armillary.base.errors import nearest
from armillary.base.extension import ExtensionPoint
from armillary.base.hints import KeyPath, show
from armillary.platform.limits import COUNT, MOST_COUNT, RATE, TEXT, Choice, Kind, Maybe, check
from armillary.platform.network import TOPOLOGIES, Dimension

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


def known_name(name: str, known: Collection[str]) -> str:
    """Return the known name that `name` spells (see `spelled` and `ALIASES`), or `name` itself if there is none."""
    # `direct8` is in no list, since any window may follow the name.
    if parse_algorithm(name) or name in known:
        return name
    by_letters = {spelled(each): each for each in reversed(list(known))}  # what is built in comes first
    aliases = {spelled(other): spelled(each) for other, each in ALIASES.items()}
    word = spelled(name)
    return by_letters.get(word) or by_letters.get(aliases.get(word, "")) or name


@lru_cache(maxsize=256)
def parse_algorithm(name: str) -> Algorithm | None:
    """Return the algorithm a name such as ``ring`` or ``direct12`` stands for, or None if there is none."""
    # Nine digits always fit MOST_COUNT, so that Algorithm cannot refuse the window.
    match = re.fullmatch(r"([a-zA-Z]+)([0-9]{1,9})", name)
    if match and match[1] in WINDOWED:
        window = int(match[2])
        # "direct0" would be no window at all, which is spelled "direct".
        return Algorithm(match[1], window) if window else None
    return Algorithm(name) if name in ASTRA_SIM_ALGORITHMS else None


def algorithm_text(algorithm: Algorithm) -> str:
    """Return an algorithm as files write it, e.g. ``direct12``."""
    return algorithm.name + (str(algorithm.window) if algorithm.window else "")


def wrong_name(name: object, known: Collection[str]) -> str:
    """Return what is wrong with the name of an algorithm, which is one of `known` or has a window; "" for nothing."""
    if isinstance(name, str) and (parse_algorithm(name) or name in known):
        return ""
    expected = f"an algorithm: {', '.join(known)} (direct and oneDirect may end in a window, direct8)"
    return f"got {show(name)}, expected {expected}{nearest(str(name), known)}"


def read_algorithms(
    document: Document, path: KeyPath, names: object, dimensions: int
) -> tuple[Algorithm, ...]:
    """Return the algorithms of one collective that ASTRA-sim runs, one per dimension, possibly fewer.

    Raises:
        InputError: Not a list, a name is unknown, or there are more names than dimensions.
    """
    # Every name that passed the check parses; the condition is for the type checker.
    read = map(parse_algorithm, read_names(document, path, names, dimensions, ASTRA_SIM_ALGORITHMS))
    return tuple(algorithm for algorithm in read if algorithm)


def read_names(
    document: Document, path: KeyPath, names: object, dimensions: int, known: Collection[str]
) -> tuple[str, ...]:
    """Return names of algorithms, one per dimension, possibly fewer; each is one of `known` or has a window.

    Raises:
        InputError: Not a list, a name is unknown, or there are more names than dimensions.
    """
    if not isinstance(names, list | tuple) or not names:
        document.reject(path, names, 'a list of algorithms, one per dimension, e.g. ["ring"]')
    names = [known_name(name, known) if isinstance(name, str) else name for name in names]
    for position, name in enumerate(names):
        if problem := wrong_name(name, known):
            raise document.error((*path, position), problem)
    if len(names) > dimensions:
        raise document.error(
            path, f"lists {len(names)} algorithms, expected at most {dimensions}, one per network dimension"
        )
    return tuple(names)


def natural_algorithm(kind: str, dimension: Dimension) -> Algorithm:
    """Return the algorithm of a collective that suits a dimension's wiring, of those that ASTRA-sim runs."""
    # A wired topology (ring, full mesh) prescribes its algorithm; a switch does not, so the collective
    # decides.
    if own := TOPOLOGIES[dimension.topology].natural:
        return Algorithm(own)
    if kind == "all-to-all":
        return Algorithm("direct")
    power_of_two = dimension.size & (dimension.size - 1) == 0
    # Halving-doubling pairs member i with i xor 2**k, which exists for all i only in a power of two.
    return Algorithm("halvingDoubling" if power_of_two else "ring")


_ALGORITHMS = Choice(ASTRA_SIM_ALGORITHMS)


@dataclass(frozen=True)
class Algorithm:
    """A collective algorithm of one dimension, e.g. ``ring``, ``direct`` with a window, ``oneRing``.

    `name` is one of `platform.collectives.ASTRA_SIM_ALGORITHMS`; `window`
    limits the messages in flight of the direct ones (None: no limit).
    """

    name: str
    window: int | None = None

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, name=_ALGORITHMS, window=Maybe(COUNT))


@dataclass(frozen=True)
class HostPath:
    """What the host of a node carries between NPUs and NICs that are not near them, for a library that cannot relay.

    A ring over several nodes enters and leaves a node by one NIC. If that is near two of its members the ring begins at
    one and ends at the other; else data of all members but one goes through the processors of the host, unless the
    library relays it through the NPU next to the NIC (NCCL from 2.12 on, PXN).

    Attributes:
        bandwidth: Bytes per ns, of all groups of a node together.
        near: NPUs, neighbours in rank, that a NIC is near to.
    """

    bandwidth: float
    near: int = 2

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, bandwidth=RATE, near=COUNT)


@dataclass(frozen=True)
class FitChoice:
    """The fit that times collectives and messages.

    Attributes:
        name: Of a fit that comes with the package, or the path of a file.
        inner: Innermost dimensions that make up a node.
        folder: What a path is relative to.
        source: File, line and key of the setting, or empty.
        host: What data cross within a node to NICs; None: the library relays them.
        preset: The preset that brought it, if the user did not ask for it: it gives way to a network model that moves
            messages, with a warning.
    """

    name: str
    inner: int = 1
    folder: Path = Path()
    source: str = ""
    host: HostPath | None = None
    preset: str = ""

    def __post_init__(self) -> None:
        """Validate the fields, see `armillary.platform.limits`."""
        check(self, name=TEXT, inner=COUNT, host=Kind(HostPath, "a HostPath or None", none=True), preset=TEXT)


def read_groups(
    document: Document, path: KeyPath, table: Mapping[Any, Any], npus: int
) -> dict[int, tuple[int, ...]]:
    """Return the groups of `table`, which stands at `path`; ranks keep the order they are listed in.

    Raises:
        InputError: An id is not a whole number above 0, or a rank does not exist or is listed twice.
    """
    for place, problem in checked_groups(table, npus):
        raise document.error((*path, *place), problem)
    return {int(key): tuple(ranks) for key, ranks in table.items()}


def checked_groups(table: Mapping[Any, Any], npus: int) -> Iterator[tuple[KeyPath, str]]:
    """Yield where and what is wrong in a table of groups on `npus` NPUs."""
    # Ids compare as numbers: YAML may give 1 and "1", JSON only gives text.
    known: set[int] = set()
    for key, ranks in table.items():
        if not re.fullmatch(r"[0-9]{1,10}", str(key)) or not 0 < int(key) <= MOST_COUNT:
            yield (key,), f"got group id {show(key)}, expected a whole number above 0"
            # The id cannot be compared with the others, so that the checks below have nothing to work on.
            return
        if int(key) in known:
            yield (key,), f"group {int(key)} is given twice"
        known.add(int(key))
        if not isinstance(ranks, list | tuple) or not ranks:
            yield (key,), f"got {show(ranks)}, expected a list of ranks"
            return
        seen: set[int] = set()
        for position, rank in enumerate(ranks):
            # NumPy integers are Integral, so a group may come from an array; True would be rank 1.
            if isinstance(rank, bool) or not isinstance(rank, Integral) or not 0 <= int(rank) < npus:
                yield (key, position), f"got {show(rank)}, expected a rank from 0 to {npus - 1}"
            if rank in seen:
                yield (key, position), f"rank {rank} is in the group twice, expected it once"
            seen.add(rank)
