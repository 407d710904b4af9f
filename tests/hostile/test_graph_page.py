"""The page of a trace graph in a real browser: piles open and close by mouse and keys, however large the trace is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_browser import Browser
from large_graph import write_large_graph

pytestmark = pytest.mark.slow
SHOWN_AT_MOST = 160


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "graph.html"
    assert write_large_graph(path).startswith("35,701 nodes,")
    return path


def opened(chromium: Browser, page: Path, width: int = 1280, theme: str = "light") -> None:
    chromium.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    chromium.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    chromium.open(page)


def boxes(chromium: Browser) -> int:
    assert chromium.value("document.querySelectorAll('.box').length") == int(
        chromium.value("document.body.dataset.boxes")
    )
    return int(chromium.value("document.body.dataset.boxes"))


def press(chromium: Browser, place: str) -> None:
    x, y = chromium.value(
        f"(() => {{ const box = document.querySelector({place!r}).getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2] })()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        chromium.mouse(kind, x, y)
    chromium.pause()


def key(chromium: Browser, name: str) -> None:
    for kind in ("keyDown", "keyUp"):
        chromium.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=13)
    chromium.pause()


def test_piles_open_where_they_are_and_close(chromium: Browser, page: Path) -> None:
    opened(chromium, page)
    first = boxes(chromium)
    assert 2 <= first <= 24
    name = chromium.value("document.querySelector('.box.group text').textContent")
    press(chromium, ".box.group")
    assert boxes(chromium) > first
    titles = chromium.value("[...document.querySelectorAll('.frame .title')].map((each) => each.textContent)")
    assert titles.count(name) == 1
    assert "\u00d7" in chromium.value("document.querySelector('.box.group .small').textContent")
    press(chromium, "#fold")
    assert boxes(chromium) == 1 or boxes(chromium) < first
    assert chromium.tripped() == []


def test_however_much_is_opened_few_boxes_are_drawn(chromium: Browser, page: Path) -> None:
    opened(chromium, page)
    for _ in range(30):
        chromium.value(
            "(() => { const all = [...document.querySelectorAll('.box.group')];"
            "all.at(-1)?.dispatchEvent(new MouseEvent('click')) })()"
        )
        assert boxes(chromium) <= SHOWN_AT_MOST
    # What no longer fits is left out, and a way back leads to it.
    overlaps = chromium.value(
        "(() => { const at = [...document.querySelectorAll('.face')].map((each) => each.getBoundingClientRect());"
        "return at.filter((one, i) => at.some((two, j) => j < i && one.x < two.right - 1 && two.x < one.right - 1"
        " && one.y < two.bottom - 1 && two.y < one.bottom - 1)).length })()"
    )
    assert overlaps == 0


def test_a_node_is_found_by_its_name_and_shown_with_what_it_waits_for(chromium: Browser, page: Path) -> None:
    opened(chromium, page)
    chromium.value(
        "(() => { const box = document.querySelector('#search'); box.focus(); box.value = 'gemm 456.7.2';"
        "box.dispatchEvent(new Event('input')) })()"
    )
    key(chromium, "Enter")
    assert chromium.value("document.querySelector('#found').textContent") == "1 of 1"
    assert chromium.value("document.querySelector('#panel h2').textContent") == "gemm 456.7.2"
    text = chromium.value("document.querySelector('#panel').innerText")
    assert "waits for (2)" in text and "aten::linear_7 control" in text and "gemm 456.7.1 data" in text
    assert chromium.value("document.querySelectorAll('.box[aria-pressed=true]').length") == 1
    # To a neighbour, from the list.
    press(chromium, "#panel li button")
    assert chromium.value("document.querySelector('#panel h2').textContent") != "gemm 456.7.2"


def test_all_can_be_done_by_keys(chromium: Browser, page: Path) -> None:
    opened(chromium, page, 400, "dark")
    first = boxes(chromium)
    chromium.value("document.querySelector('.box.group').focus()")
    assert chromium.value("document.querySelector('#panel h2').textContent")
    key(chromium, "Enter")
    assert boxes(chromium) > first
    assert chromium.value("document.activeElement.closest('.box') !== null")
    key(chromium, "Escape")
    assert chromium.value("document.querySelector('#panel').children.length") == 0
    assert chromium.value("document.documentElement.scrollWidth <= innerWidth")


def test_the_picture_is_saved_as_svg(chromium: Browser, page: Path) -> None:
    opened(chromium, page)
    chromium.value(
        "(() => { const made = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { window.saved = blob; return made(blob) };"
        "document.querySelector('#save').click() })()"
    )
    text = chromium.value("window.saved.text()")
    assert text.startswith("<svg") and "var(" not in text and text.count('class="face"') == boxes(chromium)
