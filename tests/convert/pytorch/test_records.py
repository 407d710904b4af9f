"""Documents that are cut off, damaged or of other types: one error with its place, or a value."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.convert.pytorch.records import Records

DOCUMENT = {"schema": "1.0.2", "list": [{"a": 1}, {"b": [1, 2]}, {}], "after": {"x": None}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str | bytes], tuple[dict[str, Any], list[Any]]]:
    """Return a function that reads a document with the list 'list'."""

    def function(text: str | bytes) -> tuple[dict[str, Any], list[Any]]:
        path = tmp_path / "trace.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        found: list[Any] = []
        return Records(path, "list").read(found.append), found

    return function


Read = Callable[[str | bytes], tuple[dict[str, Any], list[Any]]]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("zipped", [False, True])
def test_records_one_by_one_and_the_other_members(read: Read, indent: int | None, zipped: bool) -> None:
    data = json.dumps(DOCUMENT, indent=indent).encode()
    header, records = read(gzip.compress(data) if zipped else data)
    assert records == DOCUMENT["list"]
    assert header == {"schema": "1.0.2", "after": {"x": None}}


def test_a_bare_list_is_the_list(read: Read) -> None:
    assert read(' [ {"a": 1} , {} ]\n') == ({}, [{"a": 1}, {}])


def test_a_list_may_be_empty_and_end_in_a_comma(read: Read) -> None:
    assert read('{"list": []}') == ({}, [])
    assert read('{"list": [{}, ], }') == ({}, [{}])


@pytest.mark.parametrize("at", range(1, len(json.dumps(DOCUMENT))))
def test_cut_off_anywhere_names_line_and_column(read: Read, at: int) -> None:
    with pytest.raises(InputError, match=r"trace\.json, line 1, column \d+: "):
        read(json.dumps(DOCUMENT)[:at])


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected a JSON object, found the end of the file"),
        ("<html>", 1, 1, "expected a JSON object, found '<'"),
        ('{"list":\n [{"a": 1},\n  {"b": nope}]}', 3, 9, "not JSON: Expecting value"),
        ('{"list":\n [{"a": 1} {}]}', 2, 12, "expected ',' or ']', found '{'"),
        ('{"list": [{}]\n "x": 1}', 2, 2, "expected ',' or '}', found '\"'"),
        ('{"list": [{}, 7]}', 1, 16, "expected an object in 'list', found int"),
        ('{"list" [{}]}', 1, 9, "expected ':' after the key"),
        ("{1: 2}", 1, 3, "expected a key in double quotes"),
        ('{"list": [{}]}\n{"list": [{}]}', 2, 1, "expected the end of the file, found '{'"),
        ('[{}]\n\n"', 3, 1, "expected the end of the file"),
        ('{"list": [{"a": ' + "[" * 200_000, 1, 11, "nested too deeply"),
        ('{"list": [{"a": ' + "9" * 5000 + "}]}", 1, 11, "integer string conversion"),
    ],
)
def test_errors_say_where_and_what(read: Read, text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    where, _, rest = str(caught.value).partition(": ")
    assert where.endswith(f"trace.json, line {line}, column {column}"), where
    assert message in rest
    assert "\n" not in str(caught.value)


def test_says_which_keys_there_are_when_the_list_is_missing(read: Read) -> None:
    with pytest.raises(InputError, match=r"has no list .list., found keys schema, nodes$"):
        read('{"schema": 1, "nodes": []}')
    with pytest.raises(InputError, match="found keys none"):
        read("{}")
    with pytest.raises(InputError, match="has no list 'list'"):
        read('{"list": {"a": 1}}')


def test_damaged_gzip(read: Read) -> None:
    whole = gzip.compress(json.dumps(DOCUMENT).encode())
    for data in (whole[:-3], whole[:12], whole[:20] + b"\xff" * 8 + whole[28:], whole[:2]):
        with pytest.raises(InputError, match="damaged gzip file"):
            read(data)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="expected a readable JSON file"):
            Records(path, "list")


def test_stray_bytes_in_a_name_do_not_matter(read: Read) -> None:
    assert read(b'{"list": [{"name": "caf\xe9"}]}')[1] == [{"name": "caf�"}]


@settings(max_examples=300)
@given(st.data())
def test_mutated_documents_give_a_value_or_one_error(read: Read, data: st.DataObject) -> None:
    text = json.dumps({"list": data.draw(st.lists(JSON, max_size=3)), "x": data.draw(JSON)})
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        after = at + data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.text('[]{},:"\\0 aé', max_size=2)) + text[after:]
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = None
    try:
        header, records = read(text)
    except InputError as error:
        assert "\n" not in str(error)
        good = isinstance(wanted, dict) and isinstance(wanted.get("list"), list)
        assert not (good and all(isinstance(record, dict) for record in wanted["list"]))
        return
    if isinstance(wanted, dict) and text.count("list") == 1:
        assert repr(records) == repr(wanted["list"])
        assert header.keys() | {"list"} == wanted.keys()
    assert wanted is not None or re.search(r",\s*[]}]", text)
