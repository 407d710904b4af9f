"""Texts of others, made safe for each kind of place."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.csv_text import CsvRows
from armillary.base.errors import InputError
from armillary.base.hints import one_line
from armillary.base.page import html_page, html_text, script_data
from armillary.base.text import (
    COMMANDS,
    csv_text,
    dot_text,
    json_text,
    on_one_line,
    printable,
    xml_attribute,
    xml_text,
)

ANY = st.text(st.characters(), max_size=30)
NASTY = st.text(st.sampled_from("=+-@;,\t\n\r\"'<>&\\ a1.\x00\x1b\x9b\u202e\ud800\ufffe"), max_size=12)
TEXTS = ANY | NASTY


@given(TEXTS)
def test_nothing_commands_a_terminal(text: str) -> None:
    for made in (printable(text), one_line(text), on_one_line(text), json_text([text]), csv_text([text], [])):
        assert not COMMANDS.search(made)
        made.encode()
    for made in (one_line(text), on_one_line(text)):
        assert "\n" not in made


@given(TEXTS)
def test_json_is_what_it_was(text: str) -> None:
    assert json.loads(json_text({text: [text, 1]})) == {text: [text, 1]}
    # To a script, too, what turns the direction of text is spelled out.
    assert json.loads(script_data(text)) == "".join(c if c < "\x7f" else printable(c) for c in text)
    assert "<" not in script_data(text)


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=3))
def test_no_cell_is_a_formula(rows: list[list[str]]) -> None:
    made = csv_text(["a", "b"], rows)
    assert [len(row) for row in csv.reader(io.StringIO(made, newline=""))] == [2] * (1 + len(rows))
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(made, newline=""), delimiter=separator):
            for cell in row:
                assert not re.match(r"\s*[=@\uff1d\uff20]|\s*[+-](?![\d.\s,;]|$|inf|nan)", cell), (
                    separator,
                    made,
                )


@pytest.mark.parametrize(
    "value", [-1, 2.5, -3e-9, "-1", "+3", "1e5", "-", "a-b", "x=1", "", None, True, "-inf", float("nan")]
)
def test_what_is_no_formula_stays(value: object) -> None:
    assert csv_text([], [[value]]).splitlines()[1] == ("" if value is None else str(value))


@pytest.mark.parametrize(
    "text", ["=1+1", "@x", "-2+3", "+a", " =1", "\uff1d1", "-1+cmd|' /C calc'!A0", "\t=1"]
)
def test_what_is_a_formula_is_a_text(text: str) -> None:
    assert csv_text([text], []).strip().lstrip('"').startswith("'")


@given(TEXTS)
def test_markup_stays_text(text: str) -> None:
    element = ElementTree.fromstring(f"<a b={xml_attribute(text)}>{xml_text(text)}</a>")
    assert not element.findall("*") and list(element.attrib) == ["b"]
    made = html_text(text)
    assert not re.search("[<>\"']", made)
    assert "\ud800" not in html.unescape(made)
    quoted = dot_text(text)
    assert re.fullmatch(r'"(\\.|[^"\\\n\r\x00])*"', quoted, re.DOTALL)


def test_a_page_names_its_own_scripts() -> None:
    page = "".join(
        html_page("<b>", "", ["<p>"], data={"</script>": 1}, scripts=["one('</script>')", "two()"])
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and policy[1].count("'sha256-") == 2 and "unsafe-inline'; img" in policy[1]
    assert page.count("</script>") == 3 and "<title>&lt;b&gt;</title>" in page
    assert "script-src 'none'" in "".join(html_page("x", "", []))


@pytest.mark.parametrize(
    ("header", "row", "error"),
    [
        (["a", "b", "a"], "1,2,3", r"t\.csv:1: column 'a' is given twice, expected each once"),
        (["a", "b"], "9,000,1", r"t\.csv:2: 3 values, expected 2 as in the header"),
        (["a", "b"], "1", r"t\.csv:2: 1 values, expected 2 as in the header"),
    ],
)
def test_rows_are_as_wide_as_their_header(header: list[str], row: str, error: str) -> None:
    # A row that is wider or narrower has values in columns of others, which no later check can tell.
    rows = CsvRows("t.csv", [",".join(header), row])
    next(rows)
    with pytest.raises(InputError, match=error):
        list(rows.named(header))


def test_empty_cells_are_no_values() -> None:
    assert list(CsvRows("t.csv", ["1,2,,", ",,"]).named(["a", "b"])) == [{"a": "1", "b": "2"}]


def test_rows_say_where_they_are_none() -> None:
    rows = CsvRows("t.csv", ["a,b", "1,2", "x" * 200_000], first=5)
    assert list(next(rows)) == ["a", "b"] and rows.line == 5
    assert next(rows.named(["a", "b"])) == {"a": "1", "b": "2"}
    with pytest.raises(InputError, match=r"t\.csv:7: field larger than field limit"):
        next(rows)
