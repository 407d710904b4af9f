"""The picture is drawn for any run, says the answer, and leaves pyplot alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from armillary.base.errors import InputError
from armillary.report import breakdown_picture


def node(kind, start, end, **more):
    return {"kind": kind, "start": start, "end": end, **more}


def many(build):
    return build([{"nodes": [node("compute", 0, 10**6 * (i + 1))]} for i in range(40)])


def odd(build):
    dims = [{"name": "漢 $weird$ {name} " * 9, "topology": "Ring", "size": 4, "bandwidth_bytes_per_ns": 1.0}]
    nodes = [node("collective", 0, 10**11, label="all-reduce@$x$")]
    phases = [(0, i, 0, 0, "all-reduce", i * 10**8, (i + 2) * 10**8, 10**6) for i in range(900)]
    return build([{"nodes": nodes, "phases": phases}], dimensions=dims)


def bare(build):
    return build([{"nodes": [node("compute", 0, 3)]}], tick_ns=0.25)


@pytest.mark.parametrize("make", [many, odd, bare, lambda build: build([])])
def test_every_kind_of_run_is_drawn(build, tmp_path, make):
    breakdown_picture(make(build), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("which", ["timeline", "empty"])
@pytest.mark.parametrize("suffix", [".PNG", ".svg", ".pdf"])
def test_every_format(which, suffix, request, tmp_path):
    breakdown_picture(request.getfixturevalue(which), tmp_path / f"p{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"p{suffix}"]


def test_the_suffix_is_checked(timeline, tmp_path):
    with pytest.raises(InputError, match=r"suffix '\.jpg', expected one of \.png, \.svg, \.pdf"):
        breakdown_picture(timeline, tmp_path / "p.jpg")


def test_without_matplotlib_the_extra_is_named(timeline, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib")] or ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install armillary\[plot\]"):
        breakdown_picture(timeline, tmp_path / "p.png")


def test_pyplot_is_not_touched(timeline, tmp_path):
    timeline.save(tmp_path / "run.npz")
    code = (
        "import sys; from armillary.engine.common.timeline import Timeline; from armillary import report;"
        "report.breakdown_picture(Timeline.load(sys.argv[1]), sys.argv[2]);"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run.npz"), str(tmp_path / "p.png")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"
