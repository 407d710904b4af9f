"""Formats are found by the names of their columns."""

import gzip

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.sniff import headers, suite_of
from armillary.evidence.validate.suites import suites


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "x,y\n1,2\n", [["x", "y"]]),
        ("a.csv", "# source: somewhere\n\n x , y\n1,2\n", [["x", "y"]]),
        ("a.csv", '"x, or so",y\n1,2\n', [["x, or so", "y"]]),
        ("a.csv", "# GPUs,time\n1,2\n", [["# GPUs", "time"], ["1", "2"]]),
        ("a.csv", "# " + "long " * 40_000 + "\nx,y\n1,2\n", [["x", "y"]]),
        ("a.csv", "\ufeffx,y\r\n1,2\r\n", [["x", "y"]]),
        ("LUT", "x,y\n", [["x", "y"]]),
        ("a.json", '{"x": 1, "y": {}}', [["x", "y"]]),
        ("a.json", '[{"x": 1}, {"y": 2}]', [["x"]]),
        ("a.md", "# Title\n\n| x | y |\n| - | --: |\n| 1 | 2 |\n\n|z|\n|:-:|\n", [["x", "y"], ["z"]]),
    ],
)
def test_headers(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert headers(tmp_path / name) == expected


def test_compressed(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"# from\nx,y\n"))
    assert headers(path) == [["x", "y"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no names of columns"),
        ("a.csv", b"# only\n", "all lines begin with '#', expected rows"),
        (
            "a.csv",
            b"# GPUs,time\n8,2,3\n",
            "a.csv:2: 3 values, expected names of columns, or 2 values as in line 1",
        ),
        ("a.csv", b"op;bytes\nx;2\n", "a.csv:1: columns are separated by ';', expected ','"),
        ("a.csv", b"# from\nop\tbytes\nx\t2\n", "a.csv:2: columns are separated by tabs, expected ','"),
        ("a.tsv", b"op,bytes\nx,2\n", "separated by ',', expected tabs"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read as text"),
        ("a.csv", b"# from\n" + b"x" * 200_000 + b",y\n", r"a.csv:2: field larger than field limit"),
        ("a.csv.gz", gzip.compress(b"x,y\n" * 99, mtime=0)[:-9], "damaged gzip file"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"3", "no names of columns"),
        ("a.md", b"text\n", "no names of columns"),
    ],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        headers(tmp_path / name)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="none: cannot be read"):
        headers(tmp_path / "none")


def test_the_most_specific_suite_wins(made_up, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# GPUs,model,time (ms)\n8,x,2\n")
    assert suite_of(path, made_up).name == "wider"
    path.write_text("# GPUs,batch,time (ms)\n8,1,2\n")
    assert suite_of(path, made_up).name == "made-up"


def test_error_names_the_nearest_format_and_what_lacks(made_up, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("op,byte\nx,2\n")
    with pytest.raises(InputError) as found:
        suite_of(path, made_up)
    text = str(found.value)
    assert "columns op, byte are of no known format" in text
    assert "the nearest is of-folder, but there is no 'bytes' (did you mean 'byte'?)" in text
    assert "known are made-up, wider, of-folder" in text


@pytest.mark.shared
def test_every_suite_finds_its_own_measurements_by_their_columns(shared):
    known = suites()
    for suite in known:
        path = shared / "measured" / suite.needs
        if suite.needs and suite.columns and path.is_file():
            assert set(suite_of(path, known).columns) == set(suite.columns), suite.name
