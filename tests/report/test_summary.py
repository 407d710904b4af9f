"""The console summary: the answer first, never wider than 100 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from armillary.report import headline, print_summary


def lines(timeline, **options):
    stream = io.StringIO()
    print_summary(timeline, Console(file=stream, width=100, highlight=False, **options))
    return stream.getvalue().splitlines()


def test_the_first_line_is_the_answer(build):
    made = build([{"nodes": [], "finish": 10_366_400}], rank_class=[0] * 4096)
    assert headline(made) == "Step time 10.37 ms (10,366,400 ticks) on 4,096 NPUs"
    assert lines(made)[0] == headline(made)
    assert headline(build([{"nodes": [], "finish": 1}])) == "Step time 1 ns (1 tick) on 1 NPU"


def test_the_example(timeline):
    text = "\n".join(lines(timeline))
    assert "Ranks finish at 640 ns (first), 650 ns (median), 700 ns (last)" in text
    assert "Time of the slowest, rank 3 (+3 alike)" in text
    assert "310 ns  44.3 %" in text
    assert "all-reduce  600 B     8      1" in text
    assert "over 100 %" in text
    assert "Critical path, 6 steps across 2 classes of ranks" in text
    assert "warning: comm_size 0 of node 7 taken as 1" in text
    assert "\x1b" not in text


def extreme(build):
    name = "[bold]\n\x1b[31m" + "a.very.long.module.path." * 20
    nodes = [{"kind": "compute", "name": name, "start": 0, "end": 10**12}]
    for i in range(7):
        nodes.append(
            {"kind": "collective", "name": name, "label": f"reduce-scatter@{10**9 + i}", "size": 2**50 + i,
             "start": 10**12, "end": 2 * 10**12, "parents": [0]}
        )  # fmt: skip
    dims = [{"name": name, "topology": "FullyConnected", "size": 1024, "bandwidth_bytes_per_ns": 1234.56}]
    phases = [(1, 0, 0, 0, "all-reduce", 10**12, 2 * 10**12, 2**60)]
    groups = {str(10**9 + i): 2**20 for i in range(7)}
    return build(
        [{"nodes": nodes, "phases": phases}], rank_class=[0] * 2**20, dimensions=dims, groups=groups,
        warnings=["x" * 300],
    )  # fmt: skip


def test_the_longest_names_and_numbers_fit(build):
    text = lines(extreme(build))
    assert max(map(len, text)) <= 100
    cut = [line for line in text if "…" in line]
    assert all(line.index("…") < 75 and line.count("…") == 1 for line in cut), cut
    assert any("1,048,576" in line and "1 PiB" in line for line in text)
    assert "(5 of 7, the most time first)" in "\n".join(text)


def test_a_terminal_gets_colour(timeline):
    assert any("\x1b" in line for line in lines(timeline, force_terminal=True))


def test_a_stream_without_unicode_gets_plain_letters(timeline):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(timeline, Console(file=stream, width=100))
    stream.flush()
    assert b"###" in raw.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_output_is_recorded_and_captured_as_any_other(timeline, terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal, record=True)
    print_summary(timeline, console)
    assert "Step time 700 ns" in console.export_text()
