"""Tables of results: rows for a loop, and columns for pandas, Polars and Arrow, by one protocol."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, overload

from armillary.base.page import html_text

SHOWN = 20
"""Rows that a table shows of itself."""


class ResultTable(Sequence[dict[str, Any]]):
    """Rows of the same columns; None is what is not known.

    ``pandas.DataFrame(table)``, ``polars.DataFrame(table)``, ``pyarrow.table(table)`` and DuckDB take it as it is.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep rows, each of which has all columns."""
        self.columns = tuple(columns)
        self._rows = tuple({name: row[name] for name in self.columns} for row in rows)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> ResultTable: ...
    @overload
    def __getitem__(self, at: str) -> Any: ...
    def __getitem__(self, at: int | slice | str) -> Any:
        """Return a row by its number, some rows by a slice, or a column by its name."""
        if isinstance(at, str):
            if at not in self.columns:
                raise KeyError(f"{at!r}: no such column; there are {', '.join(self.columns)}")
            return [row[at] for row in self._rows]
        return dict(self._rows[at]) if isinstance(at, int) else ResultTable(self.columns, self._rows[at])

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultTable):
            return NotImplemented
        return self.columns == other.columns and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self.columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns as a capsule of Arrow's C stream interface; no other schema can be had."""
        from armillary.report.arrow_stream import capsule

        return capsule({name: [row[name] for row in self._rows] for name in self.columns}, len(self))

    def _texts(self) -> list[list[str]]:
        texts = [[_text(value) for value in row.values()] for row in self._rows[:SHOWN]]
        left = len(self) - SHOWN
        return [*texts, [f"{left:,} more", *[""] * (len(self.columns) - 1)]] if left > 0 else texts

    def __repr__(self) -> str:
        lines = [list(self.columns), *self._texts()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        return "\n".join(
            "  ".join(text.ljust(wide) for text, wide in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html_text(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html_text(text)}</td>' for text in line)}</tr>" for line in self._texts()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Parts(ResultTable):
    """A table of two columns, of which the first names the rows: what it holds is found by that name, too."""

    def __init__(self, values: Mapping[str, Any], columns: tuple[str, str] = ("part", "seconds")) -> None:
        """Keep values by their names."""
        self._values = dict(values)
        super().__init__(columns, [dict(zip(columns, each, strict=True)) for each in self._values.items()])

    def __getitem__(self, at: Any) -> Any:
        """Return the value of a name; else as of every table."""
        return self._values[at] if at in self else super().__getitem__(at)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._values

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._values.keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._values.values()

    def items(self) -> ItemsView[str, Any]:
        """Return names and values."""
        return self._values.items()

    def get(self, name: str, usual: Any = None) -> Any:
        """Return the value of a name, or another where there is none."""
        return self._values.get(name, usual)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self._rows)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
