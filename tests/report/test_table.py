"""Tables of results: what loops, pandas and readers of Arrow's C stream find in them."""

from __future__ import annotations

import ctypes
import gc
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, c_int, c_void_p
from typing import Any

import pytest

from armillary.report import arrow_stream
from armillary.report.arrow_stream import _Array, _Schema, _Stream
from armillary.report.memory_fit import Memory
from armillary.report.table import Parts, ResultTable

COLUMNS = {
    "name": ["ä🙂", None, ""],
    "count": [1, None, -(2**63)],
    "share": [0.5, None, 2],
    "on": [True, None, False],
    "none": [None, None, None],
}
ROWS = [dict(zip(COLUMNS, each, strict=True)) for each in zip(*COLUMNS.values(), strict=True)]


def read(table: Any) -> dict[str, list[Any]]:
    """Return the columns of a stream, read as its documentation says."""
    capsule = table.__arrow_c_stream__()
    get = PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    stream = _Stream.from_address(get(capsule, b"arrow_array_stream"))
    schema, batch, end = _Schema(), _Array(), _Array()
    assert CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))(stream.get_schema)(stream, schema) == 0
    get_next = CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))(stream.get_next)
    assert get_next(stream, batch) == get_next(stream, end) == 0
    assert schema.format == b"+s" and batch.release and not end.release
    found = {}
    for at in range(schema.n_children):
        field, array = schema.children[at].contents, batch.children[at].contents
        found[field.name.decode()] = [value(field.format, array, row) for row in range(batch.length)]
    # A child that is taken out lives on by itself; what is left goes with its parent.
    taken = _Array.from_buffer_copy(batch.children[0].contents)
    batch.children[0].contents.release = None
    for what, kind in ((batch, _Array), (schema, _Schema), (stream, _Stream), (taken, _Array)):
        CFUNCTYPE(None, POINTER(kind))(what.release)(what)
        assert not what.release
    return found


def value(kind: bytes, array: Any, row: int) -> Any:
    def at(buffer: int, ctype: Any, place: int) -> Any:
        return ctypes.cast(array.buffers[buffer], POINTER(ctype))[place]

    def bit(buffer: int) -> bool:
        return bool(at(buffer, ctypes.c_uint8, row // 8) >> row % 8 & 1)

    if array.buffers[0] and not bit(0):
        return None
    if kind == b"b":
        return bit(1)
    if kind == b"U":
        low, high = (at(1, ctypes.c_int64, place) for place in (row, row + 1))
        return ctypes.string_at(array.buffers[2] + low, high - low).decode()
    return at(1, {b"l": ctypes.c_int64, b"g": ctypes.c_double}[kind], row)


def test_arrow_reads_what_was_written_and_nothing_is_left() -> None:
    table = ResultTable(tuple(COLUMNS), ROWS)
    for many in range(3):
        assert read(table) == COLUMNS, many
    # A stream that nobody takes goes with its capsule.
    table.__arrow_c_stream__()
    assert read(ResultTable(("a",), [])) == {"a": []}
    long = ResultTable(("a", "b"), [{"a": at, "b": str(at)} for at in range(20)])
    assert read(long) == {"a": [*range(20)], "b": [str(at) for at in range(20)]}
    gc.collect()
    assert not arrow_stream._held and not arrow_stream._streams


def test_packages_take_a_table_as_it_is() -> None:
    table, parts = ResultTable(tuple(COLUMNS), ROWS), Parts({"compute": 1.5, "idle": 0.5})
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(table)["name"].tolist()[0] == "ä🙂"
    assert pandas.DataFrame(parts).set_index("part")["seconds"].to_dict() == {"compute": 1.5, "idle": 0.5}


@pytest.mark.parametrize("package", ["pyarrow", "polars"])
def test_other_packages_take_it_where_they_are(package: str) -> None:
    library: Any = pytest.importorskip(package)
    made = library.table if package == "pyarrow" else library.DataFrame
    for given in (ResultTable(tuple(COLUMNS), ROWS), Parts({"compute": 1.5}), Memory(1, 2, 3, None)):
        found = made(given)
        rows = found.to_pylist() if package == "pyarrow" else found.to_dicts()
        assert rows == list(given)


def test_a_table_is_rows_and_columns() -> None:
    table = ResultTable(tuple(COLUMNS), ROWS)
    assert list(table) == ROWS == [table[at] for at in range(len(table))] and table[1:] == ResultTable(
        table.columns, ROWS[1:]
    )
    assert table["count"] == COLUMNS["count"] and table != ResultTable(("a",), []) and table != ROWS
    with pytest.raises(KeyError, match="there are name, count"):
        table["nmae"]
    table[0]["name"] = "other"
    assert table[0]["name"] == "ä🙂"
    long = ResultTable(("a<b", "n"), [{"a<b": "<i>", "n": at} for at in range(30)])
    assert repr(long).splitlines()[-1] == "10 more" and "&lt;i&gt;" in long._repr_html_()


def test_parts_are_found_by_name() -> None:
    parts = Parts({"compute": 1.5, "idle": 0.5})
    assert dict(parts) == {"compute": 1.5, "idle": 0.5} and "idle" in parts and "x" not in parts
    assert parts["idle"] == parts.get("idle") == parts[1]["seconds"] and parts["part"] == ["compute", "idle"]
    assert sum(parts.values()) == 2 and max(parts.items(), key=lambda each: each[1])[0] == "compute"
    memory = Memory(1, 2, 3, 4)
    assert memory.fits and memory["needed_bytes"] == memory.needed_bytes == 3 and memory == Memory(1, 2, 3, 4)
    assert (
        Memory(1, 2, 3, None).fits is None and not Memory(1, 2, 5, 4).fits and memory != Memory(1, 2, 3, None)
    )
