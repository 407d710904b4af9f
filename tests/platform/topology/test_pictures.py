"""Pictures: everything is drawn once, large things are collapsed, files are complete."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform.files.preset import preset_names
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    Failure,
    degraded,
    dragonfly,
    fat_tree,
    hypercube,
    panels_of,
    rail_optimised,
    wafer_mesh,
)
from armillary.platform.topology.layout import draw
from armillary.platform.topology.levels import levels_of, panels
from armillary.platform.topology.picture import write_picture
from armillary.platform.topology.sketch import Panel


def counts(panel: Panel) -> dict[str, int]:
    sorts = [mark.sort for mark in panel.marks if mark.sort != "row"]
    return {sort: sorts.count(sort) for sort in set(sorts)}


def test_a_small_graph_is_drawn_in_full() -> None:
    (panel,) = draw(degraded(fat_tree(4, 1.0, 1.0), [Failure(node="core 0")]))
    assert counts(panel) == {"npu": 16, "switch": 20}
    assert len(panel.lines) == 48
    assert sum(line.kind == "down" for line in panel.lines) == 4
    assert len({mark.at for mark in panel.marks}) == 36 + 4
    heights = {mark.label: mark.at[1] for mark in panel.marks if mark.sort == "row"}
    assert heights["npu"] < heights["edge"] < heights["aggr."] < heights["core"]


def test_a_large_graph_is_collapsed() -> None:
    whole, one = draw(rail_optimised(64, 8, 9.0, 1.0, 1.0, 1.0, hosts_per_unit=32, spines=4))
    assert (whole.title, one.title) == ("64 hosts", "host 0")
    assert counts(whole)["block"] == 15 and "host: 15 of 64 shown" in whole.notes
    assert counts(one) == {"npu": 8, "switch": 1 + 8}
    groups, _ = draw(dragonfly(2, 4, 2, 1.0, 1.0))
    assert counts(groups) == {"block": 9} and len(groups.lines) == 36


def test_levels_of_dimensions() -> None:
    node = Dimension("node", "FullyConnected", 8, 1.0, 1.0)
    pod = [Dimension(f"pod.{i}", "Torus", 4, 1.0, 1.0) for i in range(3)]
    inner, outer = panels(levels_of([node, *pod]))
    assert counts(inner) == {"npu": 8} and len(inner.lines) == 28
    assert outer.title == "pod: Torus of 4 x 4 x 4"
    assert counts(outer) == {"block": 64} and len(outer.lines) == 3 * 64
    assert "each square is 8 NPUs; 512 in all" in outer.notes


def test_long_sides_are_shortened() -> None:
    (panel,) = panels(levels_of([Dimension("x", "Mesh", 1000, 1.0, 1.0)]))
    assert counts(panel) == {"npu": 13, "gap": 1}
    assert [mark.label for mark in panel.marks][-3:] == ["11", "…", "999"]


def test_dies_and_hypercubes() -> None:
    die, wafer = draw(wafer_mesh((10, 6), 1.0, 1.0, die=(5, 3)))
    assert counts(die) == {"npu": 15} and counts(wafer) == {"block": 4}
    (cube,) = draw(hypercube(4, 1.0, 1.0))
    assert counts(cube) == {"npu": 16} and len(cube.lines) == 32
    assert len({mark.at for mark in cube.marks}) == 16
    (part,) = draw(hypercube(7, 1.0, 1.0))
    assert counts(part) == {"npu": 32} and "5 of 7 bits shown, 128 NPUs in all" in part.notes


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_drawn_inside_the_frame(name: str) -> None:
    title, parts = panels_of(name)
    assert title and parts
    for panel in parts:
        assert panel.marks and panel.lines and panel.notes
        assert all(abs(mark.at[0]) <= 1 and abs(mark.at[1]) <= 1 for mark in panel.marks)
        places = [mark.at for mark in panel.marks]
        assert len(set(places)) == len(places)
        assert len(places) < 200


@pytest.mark.parametrize("suffix", ("png", "svg", "pdf"))
def test_picture_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"net.{suffix}"
    write_picture("a net", draw(fat_tree(4, 1.0, 1.0)), file)
    assert file.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_the_page_names_what_one_points_at(tmp_path: Path) -> None:
    file = tmp_path / "net.html"
    write_picture("a < b", draw(fat_tree(4, 50.0, 1.0)), file)
    text = file.read_text()
    assert "<h1>a &lt; b</h1>" in text
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    tips = [title.text for title in svg.iter("title")]
    assert "npu 0 → edge 0: 50 GB/s each way" in tips and "core 3" in tips
    assert len(list(svg.iter("path"))) == 48


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"suffix '.gif', expected one of .png, .svg, .pdf, .html"):
        write_picture("", [], tmp_path / "a.gif")
    with pytest.raises(InputError, match="cannot be written"):
        (tmp_path / "file").touch()
        write_picture("", [], tmp_path / "file" / "a.html")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install armillary\[plot\]"):
        write_picture("", [], tmp_path / "a.png")
