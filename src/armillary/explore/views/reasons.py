"""Reasons why points are not ok; reasons that differ only in numbers form one class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.explore.sweep.point import Row, Status

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?(?:[KMGTPE]i?)?(?:B|FLOP|FLOPs)\b|\s?(?:ns|µs|ms|s)\b)?"
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class ReasonClass:
    """Rows that are not ok for the same reason.

    Attributes:
        status: Common status of the rows.
        text: The reason; an ellipsis stands for a number that differs between rows.
        rows: Indices of the rows.
    """

    status: Status
    text: str
    rows: tuple[int, ...]

    @property
    def title(self) -> str:
        """Return status and reason in a line."""
        return f"{self.status}: {self.text}" if self.text else self.status


def reason_classes(rows: Sequence[Row]) -> list[ReasonClass]:
    """Return the reason classes of the rows that are not ok, the most frequent first."""
    members: dict[tuple[Status, tuple[str, ...]], list[int]] = {}
    numbers: dict[tuple[Status, tuple[str, ...]], list[str | None]] = {}
    for i, row in enumerate(rows):
        if row.status == "ok":
            continue
        # The words between numbers identify the class, whatever the numbers are.
        key = row.status, tuple(_NUMBER.split(row.reason))
        mine = _NUMBER.findall(row.reason)
        members.setdefault(key, []).append(i)
        kept = numbers.setdefault(key, list(mine))
        for place, number in enumerate(mine):
            # A number that all rows of the class share stays in the text.
            if kept[place] != number:
                kept[place] = None
    found = [
        ReasonClass(key[0], _woven(key[1], numbers[key]), tuple(places)) for key, places in members.items()
    ]
    return sorted(found, key=lambda one: (-len(one.rows), one.status, one.text))


def _woven(words: Sequence[str], numbers: Sequence[str | None]) -> str:
    text = words[0]
    for number, after in zip(numbers, words[1:], strict=True):
        text += ("…" if number is None else number) + after
    return text


def statuses(rows: Sequence[Row]) -> dict[str, int]:
    """Return the number of rows by status, ok first and always there; others only if they occur."""
    counts = {"ok": 0}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return counts


def status_line(rows: Sequence[Row]) -> str:
    """Return "10,000 points: 3,412 ok, 6,580 rejected, 8 failed"."""
    named = {"timeout": "over the time limit", "memory": "over the memory limit"}
    parts = [f"{count:,} {named.get(status, status)}" for status, count in statuses(rows).items()]
    return f"{len(rows):,} point{'s' * (len(rows) != 1)}: {', '.join(parts)}"
