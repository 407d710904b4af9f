"""What reports of one timeline share: names of classes of ranks, nanoseconds, and plain tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.text import on_one_line
from armillary.engine.common.timeline import Timeline

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def nanoseconds(timeline: Timeline, ticks: int) -> int | float:
    """Return `ticks` in ns; an integer if a tick is a whole number of ns."""
    tick_ns = timeline.info.get("tick_ns", 1)
    # Integers stay exact at any size; floats round above 2**53.
    return ticks * int(tick_ns) if tick_ns == int(tick_ns) else ticks * float(tick_ns)


def class_sizes(timeline: Timeline) -> NDArray[np.int64]:
    """Return the number of ranks of each class."""
    return np.bincount(timeline.rank_class, minlength=len(timeline.finish)).astype(np.int64)


def slowest(timeline: Timeline) -> int | None:
    """Return the class that finishes last (the lowest of equals), or None where there is no class."""
    return int(np.argmax(timeline.finish)) if len(timeline.finish) else None


def class_name(timeline: Timeline, cls: int, size: int) -> str:
    """Return "rank 3 (+127 alike)" for a class of 128 ranks whose representative is rank 3."""
    alike = f" (+{size - 1:,} alike)" if size > 1 else ""
    return f"rank {int(timeline.representative[cls]):,}{alike}"


def plain_table(*titles: str, left: int = 1, widest: int = 24) -> Table:
    """Return an empty table; its first column has at most `widest` characters and is the only one to be cut."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD if any(titles) else None,
        show_header=any(titles),
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=any(titles),
    )
    # Names may be cut; numbers may not, or they would mislead.
    table.add_column(titles[0], max_width=widest)
    for i, title in enumerate(titles[1:], 1):
        table.add_column(title, justify="left" if i < left else "right", no_wrap=True)
    return table


def plain_name(text: str) -> Text:
    """Return a name as literal text on one line, truncated if there is no room for it."""
    from rich.text import Text

    return Text(on_one_line(text), no_wrap=True, overflow="ellipsis")
