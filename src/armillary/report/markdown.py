"""The time breakdown of the slowest rank as a table of Markdown."""

from __future__ import annotations

import os

from armillary.base.files import write_text
from armillary.engine.common.timeline import Timeline
from armillary.report.ranks import nanoseconds, slowest
from armillary.report.summary import headline
from armillary.report.time_breakdown import TITLES, breakdown


def write_markdown(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the answer, and a row for each part that takes any time.

    Raises:
        InputError: the file cannot be written.
    """
    cls = slowest(timeline)
    parts = breakdown(timeline, cls).parts() if cls is not None else {}
    rows = [(TITLES[part], nanoseconds(timeline, ticks)) for part, ticks in parts.items() if ticks]
    table = ["| part | ns |", "|---|---:|", *(f"| {title} | {ns:,} |" for title, ns in rows)]
    write_text(path, "\n".join([f"{headline(timeline)}.", "", *table]) + "\n")
