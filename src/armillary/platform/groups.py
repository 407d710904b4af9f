"""Communicator groups, as ASTRA-sim files and native files list them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any

from armillary.base.document import Document
from armillary.base.hints import KeyPath, show
from armillary.platform.limits import MOST_COUNT


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
