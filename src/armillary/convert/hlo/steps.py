"""The steps of a module, the same for all ranks but for the participants of communication."""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.convert.hlo.groups import Group
from armillary.trace import CollectiveType

COMPUTE, COLLECTIVE, SEND, RECV = range(4)


@dataclass(frozen=True, slots=True)
class Step:
    """One node; its id is its place among the steps."""

    kind: int
    name: str
    after: tuple[int, ...]
    ctrl: tuple[int, ...]
    ops: int
    bytes: int
    """Bytes moved by a computation; ``comm_size`` of communication."""
    part: int = -1
    """Index of the part of the program that lists who communicates."""
    operation: CollectiveType | None = None
    tag: int = 0
    alone: int = 0
    """Bytes that a rank moves instead if it is in no group or receives nothing: a copy, or zeros."""


@dataclass(frozen=True, slots=True)
class Part:
    """Participants: the groups of a collective, or the (source, target) pairs of messages."""

    groups: tuple[Group, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Program:
    """Steps in issue order."""

    steps: list[Step] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
