"""Tables of the use of links."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.base.units import format_bytes, format_count, format_time
from armillary.report.links import LinkRow, busiest, kind_rows, link_rows
from armillary.report.plain import plain_name, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from armillary.engine.transport.use import NetworkUse

LINKS_SHOWN = 5


def print_links(network: NetworkUse, console: Console) -> None:
    """Print the use of links by kind, and the busiest links."""
    from rich.text import Text

    kinds, used = kind_rows(network), busiest(network)
    console.print(Text("\nLinks by kind with utilisation of the run; hot spot: busiest ÷ mean", "bold"))
    table = plain_table("kind", "links", "used", "carried", "mean", "busiest", "hot spot", "deepest queue")
    for kind in kinds:
        table.add_row(
            plain_name(kind.kind),
            format_count(kind.links),
            format_count(kind.used),
            format_bytes(kind.size),
            _percent(kind.mean),
            _percent(kind.most),
            "-" if kind.hot_spot is None else f"{kind.hot_spot:,.2f}",
            format_bytes(kind.depth),
        )
    console.print(table)
    if not used:
        return
    # Columns that only some network models fill: drops and marks of packets, pauses.
    extra: dict[str, Callable[[LinkRow], str]] = {
        title: show
        for title, show in (
            ("drops", lambda row: format_count(row.drops)),
            ("marks", lambda row: format_count(row.marks)),
            ("paused", lambda row: format_time(row.paused)),
        )
        if any(getattr(kind, title) for kind in kinds)
    }
    span = f"utilisation of the run and at most in {format_time(network.use.bin / 1000)}"
    console.print(
        Text(f"\nBusiest links with {span} ({min(LINKS_SHOWN, len(used))} of {len(used):,})", "bold")
    )
    table = plain_table(
        "link", "kind", "carried", "of run", "at most", "deepest queue", *extra, left=2, widest=34
    )
    for row in link_rows(network, used[:LINKS_SHOWN]):
        table.add_row(
            plain_name(row.name),
            plain_name(row.kind),
            format_bytes(row.size),
            _percent(row.mean),
            _percent(row.peak),
            format_bytes(row.depth),
            *(show(row) for show in extra.values()),
        )
    console.print(table)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
