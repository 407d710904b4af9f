"""Every page we write of hostile files, in a real browser that hovers and clicks: no text in it ever runs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hostile_browser import browser, is_there
from hostile_calls import CALLS
from hostile_world import FILE, HTML, spoil_store, write_world

from armillary.base.page import html_page, html_text
from armillary.cli import main
from armillary.explore.sweep.point import Row
from armillary.explore.views import Axis, Objective, write_html

pytestmark = pytest.mark.slow
CLICKS = 60
# The calls that write pages and vector pictures, and what they read.
PAGES = re.compile(r"\.(html|svg)$")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return all pages and SVG pictures that commands write of the hostile world."""
    if not is_there():
        pytest.skip("needs chromium")
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        write_world(folder)
        for name, calls in CALLS.items():
            for words in calls:
                before = name in ("sweep", "generate learn corpus", "generate learn train")
                if before or any(PAGES.search(word) for word in words):
                    CliRunner().invoke(main, [*name.split(), *words])
            if name == "sweep":
                spoil_store(folder / "store.db")
    found = sorted(path for path in folder.rglob("*") if PAGES.search(path.name))
    shown = ("o.html", "edges.html", "train.html", "sv.html", "c.html", "p.html")
    for needed in (
        *shown,
        "g.html",
        "gn.html",
        f"{FILE}.html",
        "s.html",
        "r.html",
        "v.html",
        "ms.html",
        "me.html",
    ):
        assert folder / needed in found, needed
    return found


def test_no_page_runs_a_text(pages: list[Path], tmp_path: Path) -> None:
    tripped = {}
    with browser(tmp_path) as chromium:
        for path in pages:
            chromium.open(path)
            chromium.roam(CLICKS if path.suffix == ".html" else 6)
            tripped[path.name] = chromium.tripped()
    assert not {name: each for name, each in tripped.items() if each}


def test_the_tripwire_works(tmp_path: Path) -> None:
    """A page without the functions that make text safe is found, and with the policy alone it can do nothing."""
    if not is_there():
        pytest.skip("needs chromium")
    with browser(tmp_path) as chromium:
        (tmp_path / "open.html").write_text(f"<!doctype html><body>{HTML}")
        chromium.open(tmp_path / "open.html")
        chromium.roam(CLICKS)
        found = chromium.tripped()
        assert {"script ran", "dialog", "request", "attribute"} <= {
            each.partition(":")[0] for each in found
        }, found
        (tmp_path / "bare.html").write_text(
            "".join(html_page("x", "", [HTML], data=[HTML], scripts=["void 0"]))
        )
        chromium.open(tmp_path / "bare.html")
        chromium.roam(CLICKS)
        found = chromium.tripped()
        assert {each.partition(":")[0] for each in found} <= {"refused", "attribute"}, found
        (tmp_path / "safe.html").write_text("".join(html_page(HTML, "", [html_text(HTML)], data=[HTML])))
        chromium.open(tmp_path / "safe.html")
        chromium.roam(CLICKS)
        assert chromium.tripped() == []


def test_tables_saved_by_a_page_hold_no_formula(tmp_path: Path) -> None:
    if not is_there():
        pytest.skip("needs chromium")
    cells = {
        "=1+1": "'=1+1", "-2": "-2", "-2+3": "'-2+3", "+a": "'+a", "@x": "'@x", "1e3": "1e3", "-": "-",
        "a;=1": '"a;\'=1"', 'a"b': '"a""b"', " =1": "' =1", "a, -2": '"a, -2"',
    }  # fmt: skip
    axis = Axis("=name", tuple(cells))
    rows = [
        Row(at, {axis.name: value}, str(at), "ok", "", {"step_time": 1.0 + at}, 0.0)
        for at, value in enumerate(cells)
    ]
    sweep = SimpleNamespace(space=SimpleNamespace(axes=(axis,)), objectives=(Objective("step_time", "less"),))
    write_html(rows, sweep, tmp_path / "t.html")
    with browser(tmp_path) as chromium:
        chromium.open(tmp_path / "t.html")
        chromium.value(
            "(() => { const made = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { window.saved = blob; return made(blob) };"
            "document.getElementById('csv').click() })()"
        )
        lines = chromium.value("window.saved.text()").splitlines()
        assert chromium.tripped() == []
    assert lines[0] == "point,'=name,step_time"
    for at, (value, cell) in enumerate(cells.items()):
        assert lines[1 + at] == f"{at},{cell},{at + 1}", value
