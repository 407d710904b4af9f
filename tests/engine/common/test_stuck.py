"""The table of who waits for what."""

from __future__ import annotations

from armillary.engine.common.diagnose import format_stuck


def test_columns_line_up():
    text = format_stuck([(0, 12, "forward", "running", "all-reduce: 3 of 4 ranks entered"),
                         (1023, 7, "recv\nx", "blocked", "node 6")])  # fmt: skip
    lines = text.splitlines()
    assert lines[0].split() == ["rank", "node", "name", "state", "waits", "for"]
    assert lines[2].startswith("   0    12  forward  running  all-reduce: 3 of 4")
    assert lines[3] == "1023     7  recv x   blocked  node 6"


def test_only_twenty_rows_are_shown_and_long_names_are_cut():
    text = format_stuck([(rank, 1, "n" * 500, "waiting", "rank 0") for rank in range(1030)])
    lines = text.splitlines()
    assert len(lines) == 2 + 20 + 1
    assert lines[-1] == "… and 1,010 more"
    assert max(map(len, lines)) < 100


def test_no_rows_is_a_head_alone():
    assert len(format_stuck([]).splitlines()) == 2
