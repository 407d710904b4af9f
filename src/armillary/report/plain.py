"""Tables and names as all reports print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base.text import on_one_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


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
