"""Presets for people: the list of all, and where the numbers of one come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_count
from armillary.platform.files.native import load_platform
from armillary.platform.files.preset import Preset, preset_names, read_preset

if TYPE_CHECKING:
    from rich.table import Table


def list_presets() -> list[dict[str, Any]]:
    """Return name, title, NPUs and counts of numbers of every preset."""
    return [
        {
            "name": name,
            "title": (preset := read_preset(name)).title,
            "npus": load_platform(name).npus,
            "numbers": len(preset.numbers),
            "unverified": sum(number.unverified for number in preset.numbers),
        }
        for name in preset_names()
    ]


def presets_table(rows: list[dict[str, Any]]) -> Table:
    """Return the list as a rich table."""
    # Rich is slow to import, and only tables need it.
    from rich.table import Table

    table = Table(box=None)
    for column in ("preset", "system", "NPUs", "unverified"):
        table.add_column(column, justify="left" if column in ("preset", "system") else "right")
    for row in rows:
        open_ = f"{row['unverified']} of {row['numbers']} numbers"
        table.add_row(row["name"], row["title"], format_count(row["npus"]), open_)
    return table


def numbers_table(preset: Preset) -> Table:
    """Return where each number comes from: a row of `sources`, or unverified."""
    from rich.table import Table

    places = sources(preset)
    table = Table(title="Where the numbers come from", title_justify="left", box=None)
    for column in ("number", "value", "source", "what it says"):
        table.add_column(column, overflow="fold")
    for number in preset.numbers:
        # Sources are numbered as in a paper, see `sources`.
        source = "UNVERIFIED" if number.unverified else f"[{places.index(number.source) + 1}]"
        table.add_row(number.key, number.value, source, number.says)
    return table


def sources(preset: Preset) -> list[str]:
    """Return the addresses that the numbers of a preset come from."""
    # dict.fromkeys: without repeats, in order of first mention.
    return list(dict.fromkeys(number.source for number in preset.numbers if number.source))


def describe_numbers(preset: Preset) -> list[dict[str, Any]]:
    """Return the numbers as plain values, ready for JSON."""
    return [
        {
            "key": n.key,
            "value": n.value,
            "source": n.source or None,
            "unverified": n.unverified,
            "says": n.says,
        }
        for n in preset.numbers
    ]
