"""What holds for all reports: names, reloaded timelines, a million ranks."""

from __future__ import annotations

import dataclasses
import io
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from armillary import report
from armillary.engine.common.timeline import Timeline


def text_of(timeline):
    stream = io.StringIO()
    report.print_summary(timeline, Console(file=stream, width=100, highlight=False))
    return stream.getvalue()


def test_every_name_is_there_and_none_hides_behind_a_module():
    modules = {module.name for module in pkgutil.iter_modules(report.__path__)}
    assert not modules & set(report.__all__)
    assert all(callable(getattr(report, name)) for name in report.__all__)
    with pytest.raises(AttributeError, match="no_such"):
        report.no_such  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, armillary.report; print({'numpy', 'rich', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("which", ["timeline", "empty"])
def test_a_reloaded_timeline_gives_the_same_reports(which, request, tmp_path):
    made = request.getfixturevalue(which)
    made.save(tmp_path / "run.npz")
    again = Timeline.load(tmp_path / "run.npz")
    assert report.to_json(again) == report.to_json(made)
    assert text_of(again) == text_of(made)
    for name, one in (("a", made), ("b", again)):
        report.write_perfetto(one, tmp_path / f"{name}.json.gz")
        report.breakdown_picture(one, tmp_path / f"{name}.png")
    for suffix in (".json.gz", ".png"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_million_ranks_cost_no_more_than_one(timeline, tmp_path, lines):
    ranks = 2**20
    rank_class = np.arange(ranks, dtype=np.int32) * 3 // ranks
    representative = np.searchsorted(rank_class, [0, 1, 2])
    big = dataclasses.replace(
        timeline,
        rank_class=rank_class.astype(np.int32),
        representative=representative,
        info={**timeline.info, "npus": ranks},
    )

    def work(of):
        return lines(
            lambda: (text_of(of), report.to_json(of), report.write_perfetto(of, tmp_path / "t.json"))
        )

    assert work(big) < 2 * work(timeline)
    text, found = text_of(big), report.to_json(big)
    assert text.startswith("Step time 700 ns (700 ticks) on 1,048,576 NPUs\n")
    assert [count for _, count in found["finish_ticks_by_rank"]] == [349526, 349525, 349525]


def test_a_timeline_without_ranks(build):
    nothing = build([])
    assert report.to_json(nothing)["slowest_rank"] is None
    assert text_of(nothing).startswith("Step time 0 ns (0 ticks) on 0 NPUs\n")
