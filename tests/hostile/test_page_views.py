# ruff: noqa: E501 - pieces of JavaScript
"""Pages of runs in a real browser: they draw, zoom to one chunk, fit a phone, and hold a million slices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_browser import Browser
from large_page import write_large_page

import armillary
from armillary.report.page import write_page
from armillary.report.page.tracks import tracks_beside
from armillary.trace import GraphBuilder, Trace

pytestmark = pytest.mark.slow
MACHINE = {
    "network": [
        {"name": "inner", "topology": "Switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
        {"name": "outer", "topology": "Ring", "size": 4, "bandwidth": "50 GB/s", "latency": "5 us"},
    ]
}
CANVAS = "document.querySelector('.timeline canvas')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    builder = GraphBuilder()
    for layer in range(20):
        work = builder.compute(f"layer {layer}", duration_micros=50)
        builder.all_reduce(f"sum {layer}", "8 MiB", after=work)
    timeline = armillary.simulate(Trace.replicate(builder.graph(), ranks=16), MACHINE)
    from armillary.explore.result import Result

    path = folder / "run.html"
    Result("run", timeline).to_html(path)
    return path


def press(chromium: Browser, key: str, times: int = 1) -> None:
    chromium.value(
        f"for (let i = 0; i < {times}; i++) {CANVAS}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))"
    )
    chromium.pause()


def shown(chromium: Browser) -> str:
    return str(chromium.value("document.querySelector('.timeline .tools span').textContent"))


def colours(chromium: Browser) -> int:
    """Return how many colours the timeline has: one is an empty picture."""
    return int(
        chromium.value(
            f"(() => {{ const c = {CANVAS}; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "const found = new Set(); for (let i = 0; i < d.length; i += 4) found.add(d[i] << 16 | d[i+1] << 8 | d[i+2]);"
            "return found.size })()"
        )
    )


def resized(chromium: Browser, width: int, theme: str) -> None:
    chromium.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    chromium.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_every_part_is_drawn_and_nothing_is_wider_than_the_window(
    chromium: Browser, page: Path, width: int, theme: str
) -> None:
    resized(chromium, width, theme)
    chromium.open(page)
    assert chromium.tripped() == []
    assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
    titles = chromium.value("[...document.querySelectorAll('h2')].map((each) => each.textContent)")
    assert "Timeline" in titles and "Collectives" in titles and "Why it takes so long" in titles
    assert colours(chromium) > 4


def test_the_timeline_zooms_to_one_chunk_and_back(chromium: Browser, page: Path) -> None:
    resized(chromium, 1400, "light")
    chromium.open(page)
    whole = shown(chromium)
    press(chromium, "+", 40)
    assert shown(chromium) != whole
    press(chromium, "0")
    assert shown(chromium) == whole
    # A name that is looked for is counted.
    chromium.value(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = 'layer 7';"
        "box.dispatchEvent(new Event('input')) })()"
    )
    assert "1 slice" in chromium.value("document.querySelector('.about').textContent")


def test_runs_beside_each_other_are_aligned_at_a_slice(chromium: Browser, tmp_path: Path) -> None:
    def run(micros: int) -> armillary.Timeline:
        builder = GraphBuilder()
        first = builder.compute("forward", duration_micros=micros)
        builder.compute("optimizer", duration_micros=100, after=first)
        return armillary.simulate(Trace.replicate(builder.graph(), ranks=16), MACHINE)

    write_page("two", [tracks_beside({"A": run(300), "B": run(100)})], tmp_path / "two.html")
    resized(chromium, 1400, "light")
    chromium.open(tmp_path / "two.html")
    chromium.pause()
    lit = (
        f"(() => {{ const c = {CANVAS}; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let rows = 0; for (let y = 0; y < c.height; y++) { const at = 4 * (y * c.width + Math.floor(170 + (c.width - 170) * 0.9));"
        "rows += d[at + 2] > d[at] + 60 } return rows })()"
    )
    before = chromium.value(lit)
    left, top, wide = chromium.value(
        f"(() => {{ const box = {CANVAS}.getBoundingClientRect(); return [box.x, box.y, box.width] }})()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        chromium.mouse(kind, left + 170 + (wide - 170) * 0.9, top + 40)
    assert "optimizer" in chromium.value("document.querySelector('.about').textContent")
    press_button = (
        "[...document.querySelectorAll('.tools button')].find((each) => each.textContent === '{}').click()"
    )
    chromium.value(press_button.format("align here"))
    chromium.pause()
    # The shorter run's optimizer is there now, too.
    assert chromium.value(lit) > 1.5 * before
    chromium.value(press_button.format("align starts"))
    chromium.pause()
    assert chromium.value(lit) == before


def test_what_is_always_busy_has_no_holes(chromium: Browser, page: Path) -> None:
    """The critical path has a step at every tick, however many share a pixel."""
    resized(chromium, 1400, "light")
    chromium.open(page)
    for _ in range(6):
        holes = chromium.value(
            f"(() => {{ const c = {CANVAS}; const row = c.getContext('2d').getImageData(180, 34, c.width - 184, 1).data;"
            "let found = 0; for (let i = 3; i < row.length; i += 4) found += row[i] === 0; return found })()"
        )
        assert holes == 0
        press(chromium, "+")


def test_text_has_the_contrast_that_readers_need(chromium: Browser, page: Path) -> None:
    """WCAG AA: 4.5 for all text of the page's own colours, light and dark."""
    for theme in ("light", "dark"):
        resized(chromium, 1400, theme)
        chromium.open(page)
        for ink in ("--ink", "--dim", "--accent", "--lit"):
            for ground in ("--page", "--panel"):
                ratio = chromium.value(
                    "((ink, ground) => { const light = (name) => { const hex = getComputedStyle(document.documentElement)"
                    ".getPropertyValue(name).trim().slice(1); const parts = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)"
                    " / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);"
                    "return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] };"
                    "const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05) })"
                    f"('{ink}', '{ground}')"
                )
                assert ratio >= 4.5, (theme, ink, ground, ratio)


def test_a_million_slices_are_a_page_of_five_megabytes(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    write_large_page(path)
    assert path.stat().st_size <= 5_000_000
    resized(chromium, 1400, "light")
    chromium.open(path)
    chromium.value(
        f"new Promise((done) => {{ const look = () => {CANVAS} ? done() : setTimeout(look, 50); look() }})"
    )
    chromium.pause()
    assert chromium.tripped() == [] and colours(chromium) > 4
    whole = shown(chromium)
    press(chromium, "+", 10)
    assert shown(chromium) != whole
