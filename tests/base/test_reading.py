"""What is read is a file or a living pipe, and neither it nor what it unpacks to is larger than the limits."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.base import packing, reading, yaml_text
from armillary.base.allowed import FACTOR, allow, allowed, factor
from armillary.base.csv_text import CsvRows
from armillary.base.document import read_document
from armillary.base.errors import InputError
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked, unpacked
from armillary.base.reading import check_depth, decoded, read_bytes
from armillary.base.yaml_text import load_yaml

pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_003])
def test_files_of_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(size))
    assert bytes(read_bytes(path)) == data


@pipes
@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_a_pipe_that_somebody_writes_to(tmp_path: Path, pause: float) -> None:
    os.mkfifo(path := tmp_path / "pipe")

    def write() -> None:
        with path.open("wb", buffering=0) as stream:
            for _ in range(3):
                time.sleep(pause)
                stream.write(b"x" * 100_000)

    writer = threading.Thread(target=write)
    writer.start()
    assert len(read_bytes(path)) == 300_000
    writer.join()


@pipes
def test_a_pipe_without_a_writer_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe that nobody writes to"):
        read_bytes(path)


@pipes
def test_a_pipe_whose_writer_is_silent_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIPE_SECONDS", 0.1)
    os.mkfifo(path := tmp_path / "pipe")
    silent = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(InputError, match=r"has given nothing for 0.1 s"):
            read_bytes(path)
    finally:
        os.close(silent)


@pipes
@pytest.mark.parametrize(
    ("name", "said"), [("/dev/zero", "is a device"), ("/proc/self/maps", "is a view of")]
)
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, said: str) -> None:
    if not Path(name).exists():
        pytest.skip(f"has no {name}")
    (tmp_path / "file").symlink_to(name)
    with pytest.raises(InputError, match=said):
        read_bytes(tmp_path / "file")
    with pytest.raises(InputError, match=said):
        read_document(tmp_path / "file", "study file", "yaml")


def test_a_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)


def test_one_number_raises_all_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1001))
    with pytest.raises(InputError, match=rf"has 1,001 B, expected at most 1,000 B \({FACTOR}=1.1 raises"):
        read_bytes(path, 1000)
    with allow(limits=1.1):
        assert len(read_bytes(path, 1000)) == 1001
    monkeypatch.setenv(FACTOR, "inf")
    assert len(read_bytes(path, 1000)) == 1001
    with allow(limits=1), pytest.raises(InputError):
        read_bytes(path, 1000)


@pytest.mark.parametrize("value", ["many", "0", "-1", "nan"])
def test_a_factor_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(FACTOR, value)
    with pytest.raises(InputError, match=f"{FACTOR}: got '{value}', expected a number above 0"):
        factor()


def test_what_is_allowed_ends_with_the_context_and_stays_in_its_thread() -> None:
    with allow(programs=True):
        found: list[bool] = []
        other = threading.Thread(target=lambda: found.append(allowed().programs))
        other.start()
        other.join()
        assert allowed().programs and found == [False]
    assert not allowed().programs


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
def test_unpacked_is_what_was_packed(tmp_path: Path, size: int) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = os.urandom(size)
    for packed in (
        data, gzip.compress(data), gzip.compress(data[:5]) + gzip.compress(data[5:]) + bytes(8),
        zstandard.compress(data), zstandard.compress(data[:5]) + zstandard.compress(data[5:]),
    ):  # fmt: skip
        assert bytes(unpacked(packed, "file")) == data
    with pytest.raises(InputError, match="damaged gzip file"):
        unpacked(gzip.compress(data)[:-9], "file")


def test_what_unpacks_to_much_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(bytes(packing.SURE_UNPACKED + 1)))
    with pytest.raises(InputError, match="unpacks to more than 64 MiB, expected less"):
        read_unpacked(path)
    with allow(limits=2):
        assert len(read_unpacked(path)) == packing.SURE_UNPACKED + 1
    # Large ones may give more.
    path.write_bytes(gzip.compress(os.urandom(1 << 19)) + gzip.compress(bytes(packing.SURE_UNPACKED)))
    assert len(read_unpacked(path)) == (1 << 19) + packing.SURE_UNPACKED


def test_json_is_bounded() -> None:
    assert parse_json(memoryview(b'{"a": [1]}'), "file") == {"a": [1]}
    for text in ("[" * 300 + "]" * 300, "[" * 100_000):
        with pytest.raises(InputError, match="file: nested too deeply, expected at most 200 levels"):
            parse_json(text, "file")
    with pytest.raises(json.JSONDecodeError):
        parse_json("[" * 100, "file")
    many = "[" + "1," * reading.MOST_VALUES + "1]"
    with pytest.raises(InputError, match="file: has about 10 M values, expected at most 10 M"):
        parse_json(many, "file")


def test_depth_of_what_is_shared_takes_no_time() -> None:
    value: list[object] = []
    for _ in range(100):
        value = [value] * 9
    check_depth(value, "file")
    value.append(value)
    with pytest.raises(InputError, match="nested too deeply"):
        check_depth(value, "file")


def test_open_brackets_of_yaml_take_no_time(lines: Callable[[Callable[[], object]], int]) -> None:
    def read(text: str) -> None:
        with pytest.raises(InputError, match=r"file: nested too deeply|file:\d+:\d+: not valid YAML"):
            load_yaml(text, "file")

    read("[")
    assert lines(lambda: read("a: [x, " + "[" * 4000)) < 100_000
    assert lines(lambda: read("a: {" + '{"a": ' * 4000)) < 100_000
    # Within the levels that are allowed, too.
    assert lines(lambda: read(("[" * 190 + "1" + "]" * 190 + "\n") * 40)) < 100_000
    many = "[" + ("[" * 20 + "1" + "]" * 20 + ", ") * 300 + "1]"
    with_more_characters = many + " " * yaml_text.FAST_FROM
    assert load_yaml(many, "file") == load_yaml(with_more_characters, "file")


def test_yaml_may_share_but_not_multiply() -> None:
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n", "file") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}],
    }  # fmt: skip
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 11)]
    with pytest.raises(InputError, match=r"file:\d+: has .* values with all aliases written out"):
        load_yaml("\n".join(lines), "file")
    with pytest.raises(InputError, match="file:1: is within itself, by an alias"):
        load_yaml("&a [*a]", "file")


def test_half_a_character_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"file:2: has \\ud800, half of a character"):
        load_yaml('a: 1\n"b\\ud800": 2\n', "file")
    assert load_yaml('a: "\\u00e9 \\U0001f600"', "file") == {"a": "\xe9 \U0001f600"}


@pytest.mark.parametrize(
    "text", ["a: 2020-99-99", "a: !!binary x", "a: !!set 1", "a: !!timestamp x", "a: !x 1"]
)
def test_yaml_that_cannot_be_made_is_one_error(text: str) -> None:
    with pytest.raises(InputError, match=r"file.*: not valid YAML"):
        load_yaml(text, "file")


def test_large_yaml_reads_the_same() -> None:
    rows = [
        {"from": f"npu {i}", "to": "switch", "bandwidth": "1 GB/s", "n": i, "x": i / 3} for i in range(4000)
    ]
    text = "links:\n" + "".join(f"  - {json.dumps(row)}\n" for row in rows)
    assert load_yaml(text, "file") == {"links": rows}
    with pytest.raises(InputError, match=r"file:4003: \w+: key given twice"):
        load_yaml(text + "a: 1\na: 1\n", "file")


def test_short_lines_are_counted_before_they_are_cut() -> None:
    with allow(limits=1e-6):
        assert decoded(b"\xef\xbb\xbf" + b"a\n" * 10, "x") == "a\n" * 10
        for end in ("\n", "\r", "\x0b", "\u2028"):
            with pytest.raises(InputError, match="x: has 11 lines, expected at most 10"):
                decoded(f"a{end}".encode() * 11, "x")


def test_rows_of_a_table_are_counted() -> None:
    with allow(limits=5e-6):
        assert len(list(CsvRows("x", ["a,b"] * 10))) == 10
        with pytest.raises(InputError, match="x: rows: 11 of them, expected at most 10: a shorter table"):
            list(CsvRows("x", ["a,b"] * 12))
