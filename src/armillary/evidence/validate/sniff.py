"""Find the suite that reads a file by the names of its columns."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from armillary.base.csv_text import CsvRows, check_separator, nearest_columns, number_in
from armillary.base.errors import InputError
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_TEXT, decoded
from armillary.evidence.validate.table import Suite

# Comments above a header may be long.
_LINES = 200
"""Lines of a CSV file within which its header must stand."""


def suite_of(path: Path, suites: Sequence[Suite]) -> Suite:
    """Return the suite whose columns `path` has; of several that with the most columns, then the first.

    Raises:
        InputError: it cannot be read, or has the columns of none.
    """
    # Several headers: a Markdown file has many tables.
    found = headers(path)
    fits = [
        (len(set(names)), suite)
        for suite in suites
        for names in (suite.columns, *suite.also)
        if names and any(set(names) <= set(one) for one in found)
    ]
    if not fits:
        raise _unknown(path, found, [suite for suite in suites if suite.columns])
    # Most columns: the most special format of those that fit.
    return max(fits, key=lambda pair: pair[0])[1]


def headers(path: Path) -> list[list[str]]:
    """Return what may be the names of the columns of a file.

    Of ``.csv`` and ``.csv.gz`` the first line that does not begin with ``#``, and such a line above it with as many
    cells, since a first column may be called ``# GPUs``; of ``.tsv`` the same, between tabs. Of ``.md`` the header of
    each table, and the names in a line of a log (``completed step: 15, seconds: 17.182, …``). Of ``.json`` the keys of
    the object, and of the first in a list or in a list within the object; of ``.jsonl`` those of its first
    line. A file without one of these suffixes is read
    as ``.csv``.

    Raises:
        InputError: it cannot be read, or is empty.
    """
    # "measured.csv.gz" is a CSV file.
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    try:
        found = {"json": _keys, "jsonl": _first_keys, "md": _tables, "tsv": _tabbed}.get(kind, _first_lines)(
            path
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not any(found):
        raise InputError(
            f"{path}: there are no names of columns above rows, expected .csv, .csv.gz, .tsv, .json or .md with them"
        )
    return found


def _lines(path: Path) -> Iterator[str]:
    # utf-8-sig: spreadsheets write a byte order mark.
    yield from io.StringIO(decoded(read_unpacked(path, MOST_TEXT), path), newline="")


def _tabbed(path: Path) -> list[list[str]]:
    return _first_lines(path, "\t")


def _first_lines(path: Path, between: str = ",") -> list[list[str]]:
    lines = [pair for pair in enumerate(itertools.islice(_lines(path), _LINES), 1) if pair[1].strip()]
    place = next((at for at, (_, line) in enumerate(lines) if not line.startswith("#")), None)
    if place is None:
        if not lines:
            return []
        raise InputError(
            f"{path}: all lines begin with '#', expected rows of values, and names of columns above them"
        )
    check_separator(path, *lines[place], between)
    cells = _cells(path, *lines[place], between)
    above = []
    # Files whose first column is called "# GPUs"; a comment that is no row of a table is only a comment.
    for number, line in lines[:place]:
        with suppress(InputError):
            above.append(_cells(path, number, line, between))
    names = [one for one in above if len(one) == len(cells) > 1]
    # A number is no name of a column: the names were to stand above, in a comment of another width.
    if above and not names and any(number_in(cell) is not None for cell in cells):
        raise InputError(
            f"{path}:{lines[place][0]}: {len(cells)} values, expected names of columns, or {len(above[-1])} values "
            f"as in line {lines[place - 1][0]}"
        )
    return [*names, cells]


def _cells(path: Path, number: int, line: str, between: str) -> list[str]:
    return [cell.strip() for cell in next(CsvRows(path, [line], number, delimiter=between))]


def _first_keys(path: Path) -> list[list[str]]:
    first = next((line for line in _lines(path) if line.strip()), "{}")
    found = parse_json(first, path)
    return [list(found)] if isinstance(found, dict) else []


def _keys(path: Path) -> list[list[str]]:
    found = parse_json("".join(_lines(path)), path)
    inner = found.values() if isinstance(found, dict) else ()
    # Of a list the first, and of an object with notes beside its rows the first of those.
    firsts = [each[0] for each in (found, *inner) if isinstance(each, list) and each]
    return [list(each) for each in (found, *firsts) if isinstance(each, dict)]


def _tables(path: Path) -> list[list[str]]:
    rows = [line.strip() for line in _lines(path)]
    found = [
        [cell.strip() for cell in above.strip("|").split("|")]
        # The rule below a header: dashes, bars and colons only.
        for above, rule in itertools.pairwise(rows)
        if above.startswith("|") and "-" in rule and not rule.strip("|-: ")
    ]
    logged = next((row for row in rows if row.startswith("completed step:")), "")
    names = [before.rpartition(",")[2].strip() for before in logged.split(":")[:-1]]
    return [*found, names] if names else found


def _unknown(path: Path, found: Sequence[Sequence[str]], suites: Sequence[Suite]) -> InputError:
    if not suites:
        return InputError(f"{path}: none of these validations reads files")
    found = [header for header in found if header]
    header = max(found, key=lambda names: max(len({*one.columns} & {*names}) for one in suites))
    known = {one.name: one.columns for one in suites}
    return InputError(
        f"{path}: columns {', '.join(header)} are of no known format: {nearest_columns(header, known)}; known are "
        f"{', '.join(known)} (for their columns: armillary validate --list)"
    )
