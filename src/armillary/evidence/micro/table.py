"""Results as tables like those of nccl-tests, as JSON and as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.files import write_text
from armillary.base.text import csv_text
from armillary.base.units import format_bandwidth, format_bytes, format_time
from armillary.evidence.micro.measure import Result

if TYPE_CHECKING:
    from rich.table import Table

    from armillary.platform.model import Platform


def warnings(results: Iterable[Result]) -> list[str]:
    """Return the warnings of the simulations, each once."""
    return list(dict.fromkeys(text for result in results for text in result.warnings))


def tables(results: Iterable[Result]) -> Iterator[Table]:
    """Yield a table for each test and group size: size, count, type, time, bandwidths; or the overlap."""
    # groupby joins neighbours only: results come in the order of the sweep.
    for (test, members, beside), found in groupby(
        results, key=lambda result: (result.case.test, result.case.members, result.ratio is not None)
    ):
        rows = list(found)
        groups = rows[0].case.npus // members
        who = f"{members} ranks" if groups == 1 else f"{groups} groups of {members} ranks"
        yield (_overlap if beside else _bandwidths)(f"{test}, {who}", rows)


def _bandwidths(title: str, rows: Sequence[Result]) -> Table:
    table = _table(title, "size", "count", "type", "time", "algorithm bandwidth", "bus bandwidth")
    for row in rows:
        case = row.case
        rates = ("-" if rate is None else format_bandwidth(rate) for rate in row.bandwidths)
        size, kind = (format_bytes(case.size), case.element) if case.size else ("-", "-")
        count = f"{case.count:,}" if case.size else "-"
        table.add_row(size, count, kind, format_time(row.time_ns), *rates)
    return table


def _overlap(title: str, rows: Sequence[Result]) -> Table:
    table = _table(f"{title}, beside compute", "size", "ratio", "collective", "compute", "together", "hidden")
    for row in rows:
        times = (format_time(ns or 0) for ns in (row.alone_ns, row.compute_ns, row.time_ns))
        size = format_bytes(row.case.size) if row.case.size else "-"
        table.add_row(size, f"{row.ratio:g}", *times, f"{100 * (row.hidden or 0):.0f} %")
    return table


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def write_json(path: Path, results: Sequence[Result], platform: Platform, profile: str) -> None:
    """Write the results with what machine they are of; times in ns, bandwidths in bytes per ns (GB/s)."""
    from armillary.platform import describe

    facts = {
        "profile": profile,
        "platform": describe(platform),
        "warnings": warnings(results),
        "results": [result.facts() for result in results],
    }
    write_text(path, json.dumps(facts, indent=1) + "\n")


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """Write a line per result with the columns of `Result.facts`; what does not apply stays empty."""
    rows = [result.facts() for result in results]
    # All rows have the same keys.
    write_text(path, csv_text(list(rows[0]) if rows else [], [list(row.values()) for row in rows]))
