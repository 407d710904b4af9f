"""The table that explains a simulation which cannot finish: who waits for what."""

from __future__ import annotations

from collections.abc import Sequence

ROWS_SHOWN = 20
_HEAD = ("rank", "node", "name", "state", "waits for")
_WIDEST = 40


def format_stuck(rows: Sequence[tuple[int, int, str, str, str]]) -> str:
    """Return a plain table of (rank, node id, node name, state, waits for), in the order given.

    At most `ROWS_SHOWN` rows are shown, then how many more there are; long names lose their middle.
    """
    cells = [_HEAD]
    for rank, node, name, state, waits_for in rows[:ROWS_SHOWN]:
        cells.append((str(rank), str(node), _shorten(name), state, waits_for))
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    lines = []
    for row in cells:
        numbers = [cell.rjust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        words = [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(numbers + words).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(rows) > ROWS_SHOWN:
        lines.append(f"… and {len(rows) - ROWS_SHOWN:,} more")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    """Return `text` on one line, in at most `_WIDEST` characters."""
    text = " ".join(text.split())
    if len(text) <= _WIDEST:
        return text
    half = (_WIDEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
