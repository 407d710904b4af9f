"""Communicator groups, as ASTRA-sim files and native files list them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from armillary.platform.document import Document, KeyPath, show

_INT_MAX = 2**31 - 1


def read_groups(
    document: Document, path: KeyPath, table: Mapping[Any, Any], npus: int
) -> dict[int, tuple[int, ...]]:
    """Return the groups of `table`, which stands at `path`; ranks keep the order they are listed in.

    Raises:
        InputError: An id is not a whole number above 0, or a rank does not exist or is listed twice.
    """
    groups: dict[int, tuple[int, ...]] = {}
    for key, ranks in table.items():
        if not re.fullmatch(r"[0-9]{1,10}", str(key)) or not 0 < int(key) <= _INT_MAX:
            raise document.error((*path, key), f"got group id {show(key)}, expected a whole number above 0")
        if int(key) in groups:
            raise document.error((*path, key), f"group {int(key)} is given twice")
        if not isinstance(ranks, list | tuple) or not ranks:
            document.reject((*path, key), ranks, "a list of ranks")
        seen: set[int] = set()
        for position, rank in enumerate(ranks):
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < npus:
                document.reject((*path, key, position), rank, f"a rank from 0 to {npus - 1}")
            if rank in seen:
                raise document.error(
                    (*path, key, position), f"rank {rank} is in the group twice, expected it once"
                )
            seen.add(rank)
        groups[int(key)] = tuple(ranks)
    return groups
