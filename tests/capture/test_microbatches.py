"""Pipelines whose microbatches are recorded once, against the same with each of them run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from armillary.capture import Log, capture_script
from armillary.capture.log import COMMUNICATION, HOST, OPERATOR, RECORD, WAIT
from armillary.capture.microbatches import NOTE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAMS = Path(__file__).with_name("programs")


def rows(log: Log) -> list[Any]:
    """Return what a log says, events by the order in which they are first named."""
    events: dict[int, int] = {}
    found = []
    for row in log.rows:
        what: Any = row.what
        if row.kind in (RECORD, WAIT) or (row.kind == HOST and what):
            what = events.setdefault(what, len(events))
        elif row.kind == OPERATOR:
            what = log.kinds[what]
        elif row.kind == COMMUNICATION:
            what = log.communications[what], log.groups[log.communications[what].group]
        found.append((row.kind, what, row.stream, log.places[row.place], row.calls))
    return found


def both(folder: Path, program: str, words: str, ranks: int, run: tuple[int, ...]) -> list[tuple[Log, Log]]:
    """Return ranks with microbatches that repeat recorded once, and the same with each of them run."""
    once, whole = (
        capture_script(
            str(PROGRAMS / program), words.split(), folder=folder / str(every), ranks=ranks, run=run,
            every_microbatch=every,
        )
        for every in (False, True)
    )  # fmt: skip
    return list(zip(once, whole, strict=True))


def equal(once: Log, whole: Log) -> bool:
    """Return whether two ranks did the same, to the last row and byte."""
    return (
        rows(once) == rows(whole)
        and (once.peak_bytes, once.peak_by) == (whole.peak_bytes, whole.peak_by)
        and (once.reserved_bytes, once.host_bytes) == (whole.reserved_bytes, whole.host_bytes)
        and once.assumed == whole.assumed
    )


@pytest.mark.parametrize(
    "words",
    [
        "--schedule 1F1B", "--schedule GPipe", "--schedule Interleaved1F1B", "--schedule 1F1B --reentrant",
        "--schedule 1F1B --compile", "--schedule GPipe --reshard",
    ],
)  # fmt: skip
def test_microbatches_that_repeat_are_recorded_as_if_they_had_run(tmp_path: Path, words: str) -> None:
    found = both(tmp_path, "schedules.py", words, 4, (0, 2))
    assert all(equal(once, whole) for once, whole in found)
    assert any(NOTE in once.notes for once, _ in found)
    assert not any(NOTE in whole.notes for _, whole in found)


def test_a_tensor_parallel_llama_in_stages_is_recorded_as_if_all_had_run(tmp_path: Path) -> None:
    words = "--size tiny --tp 2 --pp 2 --cp 2 --microbatches 6 --checkpoint --tokens 512"
    for once, whole in both(tmp_path, "llama3.py", words, 16, (0, 8)):
        assert equal(once, whole) and NOTE in once.notes


def test_a_rank_whose_last_microbatch_is_not_like_the_others_runs_all_of_them(tmp_path: Path) -> None:
    for once, whole in both(tmp_path, "schedules.py", "--microbatches 8 --odd-last", 4, (0, 2)):
        assert equal(once, whole) and NOTE not in once.notes


def test_forward_passes_that_repeat_are_run_after_all_where_backward_passes_are_not_alike_at_first(
    tmp_path: Path,
) -> None:
    for once, whole in both(tmp_path, "schedules.py", "--schedule GPipe --odd-second", 4, (0, 2)):
        assert equal(once, whole) and NOTE in once.notes


def test_schedules_whose_backward_passes_have_no_order_of_their_own_run_all(tmp_path: Path) -> None:
    """PyTorch goes through sets there: two whole runs differ in the order of some rows, too."""
    for once, whole in both(tmp_path, "schedules.py", "--schedule ZBVZeroBubble", 4, (0, 2)):
        assert sorted(str(row[:-1]) for row in rows(once)) == sorted(str(row[:-1]) for row in rows(whole))
        assert once.peak_bytes == whole.peak_bytes and NOTE not in once.notes
