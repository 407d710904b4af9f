"""Algorithms as ASTRA-sim files and native files write them: read, checked, and what suits a dimension."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from armillary.base.document import Document
from armillary.base.errors import nearest
from armillary.base.hints import KeyPath, show
from armillary.platform.collectives import (
    ALIASES,
    ASTRA_SIM_ALGORITHMS,
    WINDOWED,
    spelled,
)
from armillary.platform.dimension_topologies import TOPOLOGIES
from armillary.platform.limits import COUNT, Choice, Maybe, check
from armillary.platform.network import Dimension


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
