"""Files of captured ranks: whole, or refused in one line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.capture.log import ALL, HOST, OPERATOR, RECORD, WAIT, Communication, Log, Row, renumbered
from armillary.capture.rank_files import path_of, read, read_captured, write
from armillary.trace.attention import Attention
from tests.capture.logs import KINDS, call, kernel, log


def whole() -> Log:
    found = log(
        3, 16, [kernel(), call(0), call(1, 2), Row(HOST, 0, -1)], [tuple(range(3, 16, 4)), (3, 5, 6)],
        [Communication("all-to-all", 96, 96, 1, True, splits=(32, 48, 16)), Communication("send", 8, 0, 0, True, 7, 5)],
    )  # fmt: skip
    attends = replace(
        KINDS[0],
        name="aten::attend",
        family="attention",
        gemm=None,
        attention=Attention(1, 8, 8, 64, 64, 128, 128, 0),
    )
    found.kinds = [*KINDS, attends]
    found.reserved_bytes = 2 << 20
    found.peak_bytes, found.assumed, found.notes = 4096, {"train.py:3": 2}, ["torch.save was left out"]
    return found


def test_a_rank_is_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, whole())
    assert read(path_of(tmp_path, 3)) == whole()


def test_equal_ranks_are_equal_files(tmp_path: Path) -> None:
    write(tmp_path, whole())
    first = path_of(tmp_path, 3).read_bytes()
    write(tmp_path, whole())
    assert path_of(tmp_path, 3).read_bytes() == first


def rows(**change: Any) -> dict[str, list[Any]]:
    """Return one row as a file has it."""
    return {
        name: [value]
        for name, value in ({"kind": 0, "what": 0, "stream": 0, "place": 0, "calls": 0} | change).items()
    }


GATHER = {"type": "all-gather", "input": 8, "output": 16, "group": 0, "peer": -1, "tag": 0, "splits": []}


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 16}, {"rank": "3"}, {"rows": rows(kind=9)}, {"rows": rows(what=99)},
        {"rows": rows(what=0.5)}, {"rows": rows(what=True)}, {"rows": rows(what=2**63)}, {"rows": rows(stream=-2)},
        {"rows": rows(calls=2**31)}, {"rows": rows() | {"what": []}}, {"rows": 5}, {"rows": [[0, 0, 0, 0, 0]]},
        {"rows": rows(place=7)}, {"rows": {"kind": [0]}}, {"groups": [[3, 99]]},
        {"groups": [{"first": 0, "count": 10**12, "step": 1}]}, {"groups": [[]]}, {"kinds": [{}]}, {"kinds": [5]},
        {"format": "other"}, {"communications": {"different": [{"type": "send"}], "which": [0]}},
        {"communications": {"different": [], "which": [0]}}, {"more": 1}, {"places": [[1]]},
        {"peak_bytes": "many"}, {"reserved_bytes": 0.5}, {"ranks": -1}, {"ranks": 10**9}, {"script": 5}, {"notes": [1]},
        {"assumed": {"a": "b"}},
        {"groups": [[0, 1]], "communications": {"different": [GATHER | {"own_stream": []}], "which": [0]}},
    ],
    ids=str,
)  # fmt: skip
def test_damage_is_refused_in_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, whole())
    path = path_of(tmp_path, 3)
    content = json.loads(gzip.decompress(path.read_bytes())) | change
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(InputError, match=r"rank_3\.json\.gz.*expected") as failure:
        read(path)
    assert "\n" not in str(failure.value)


def test_a_file_that_is_cut_or_missing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, whole())
    path = path_of(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"rank_3\.json\.gz"):
        read(path)
    with pytest.raises(InputError, match=r"rank_4\.json\.gz: No such file"):
        read(path_of(tmp_path, 4))


def test_a_folder_says_which_ranks_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no capture\.json, expected a folder"):
        read_captured(tmp_path)
    (tmp_path / "capture.json").write_text('{"ranks": 16}')
    with pytest.raises(InputError, match=r"names no ranks that were run.*run it again"):
        read_captured(tmp_path)
    (tmp_path / "capture.json").write_text('{"done": [3]}')
    write(tmp_path, whole())
    assert read_captured(tmp_path) == [whole()]
    other = log(4, 32, [kernel()])
    write(tmp_path, other)
    (tmp_path / "capture.json").write_text('{"done": [3, 4]}')
    with pytest.raises(InputError, match="of 32 ranks on h100-sxm, expected 16"):
        read_captured(tmp_path)


def test_events_are_numbered_in_the_order_of_their_names() -> None:
    rows = [
        Row(WAIT, 90, 1), Row(RECORD, 17, 0), Row(OPERATOR, 5, 0), Row(HOST, 0, ALL), Row(HOST, 17, 0),
        Row(RECORD, 1 << 40, 2),
    ]  # fmt: skip
    found = renumbered(rows)
    assert [row.what for row in found] == [1, 2, 5, 0, 2, 3] and found == renumbered(found)
    assert len(renumbered([])) == 0
