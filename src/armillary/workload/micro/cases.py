"""One test case of a sweep, and the cases of a whole sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.units import format_bytes
from armillary.trace import Trace
from armillary.workload.micro.collectives import COLLECTIVES, check_group, collective_trace, comm_size, parts
from armillary.workload.micro.messages import PATTERNS, pattern_trace


@dataclass(frozen=True)
class Case:
    """One collective, or one pattern of messages, that every group runs at the same time."""

    test: str
    """One of `COLLECTIVES` or `PATTERNS`."""
    npus: int
    members: int
    """Ranks of a group."""
    size: int
    """Bytes, as nccl-tests counts them: of a message, of a collective's vector, or of all its parts together."""
    element: str = "float32"
    compute_ns: int = 0
    """Duration of the compute node beside the collective; 0: none."""

    @property
    def name(self) -> str:
        """A name no other case of a sweep has, fit for a file."""
        beside = f"_beside_{self.compute_ns}ns" if self.compute_ns else ""
        return f"{self.test}_{self.members}_{self.size}B{beside}"

    @property
    def count(self) -> int:
        """Elements, as nccl-tests counts: of the vector, a part or a message."""
        return self.size // parts(self.test, self.members) // ELEMENTS[self.element]

    @property
    def comm_size(self) -> int:
        """``comm_size`` of the nodes."""
        return comm_size(self.test, self.members, self.size)

    def trace(self) -> Trace:
        """Return the trace."""
        if self.test in PATTERNS:
            return pattern_trace(self.test, self.npus, self.members, self.size)
        return collective_trace(self.test, self.npus, self.members, self.size, self.compute_ns)

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return {**asdict(self), "groups": self.npus // self.members, "count": self.count,
                "comm_size": self.comm_size}  # fmt: skip


def sweep(
    tests: Iterable[str],
    npus: int,
    sizes: Sequence[int],
    groups: Iterable[int] | None = None,
    element: str = "float32",
) -> list[Case]:
    """Return the cases: tests x groups x sizes.

    Sizes are rounded down to whole elements, in collectives whose data is divided to whole elements for each
    rank, as in nccl-tests; what is then 0, or there already, is left out. A barrier has no size.

    Args:
        tests: names in `COLLECTIVES` or `PATTERNS`.
        npus: ranks in all.
        sizes: bytes, see `Case.size`.
        groups: ranks of a group, each a divisor of `npus`; None for one group of all.
        element: one of `ELEMENTS`.

    Raises:
        InputError: an unknown test or type, an impossible group, or sizes too small for a single case.
    """
    _known(element, ELEMENTS, "type")
    chosen = [npus] if groups is None else list(dict.fromkeys(groups))
    for members in chosen:
        check_group(npus, members)
    found: dict[Case, None] = {}
    for test in tests:
        _known(test, [*COLLECTIVES, *PATTERNS], "test")
        for members in chosen:
            # The smallest size with one element in every part; sizes are rounded down to a multiple of it.
            unit = ELEMENTS[element] * parts(test, members)
            fitting = [0] if test == "barrier" else [size // unit * unit for size in sizes if size >= unit]
            # Sizes that round to the same one are one case; a dict keeps their order.
            found |= dict.fromkeys(Case(test, npus, members, size, element) for size in fitting)
    if not found:
        raise InputError(
            f"no size is large enough for an element of type {element} for every rank: expected a larger one"
        )
    return list(found)


def _known(name: str, known: Iterable[str], what: str) -> None:
    choices = list(known)
    if name not in choices:
        raise InputError(f"{what} '{name}': expected {one_of(choices)}{nearest(name, choices)}")


ELEMENTS = {
    "int8": 1, "uint8": 1, "float8": 1, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of an element by its type."""


def sizes(smallest: int, largest: int, factor: int = 2) -> list[int]:
    """Return `smallest`, `smallest` x `factor`, … up to `largest`, in bytes.

    Raises:
        InputError: there is none, or they do not grow.
    """
    if smallest < 1 or largest < smallest:
        raise InputError(
            f"sizes from {format_bytes(smallest)} to {format_bytes(largest)}: "
            "expected a smallest one of at least 1 B, and a largest one that is not below it"
        )
    if factor < 2:
        raise InputError(f"sizes grow by the factor {factor}: expected at least 2")
    found = []
    while smallest <= largest:
        found.append(smallest)
        smallest *= factor
    return found
