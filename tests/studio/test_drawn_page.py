"""Networks that are drawn in the studio, as dimensions and as graphs, in a browser."""

from __future__ import annotations

import pytest
from looks import CHANGED_AT_MOST, changed
from studio_page import CONTRAST, CTRL, NAMELESS, SMALL, Page, hostile_browser, seconds

pytestmark = pytest.mark.slow


def test_which_network_would_i_build(page: Page) -> None:
    page.open(SMALL)
    page.click("#drawn summary")
    page.click("#drawn-more")
    page.until("/on 64 devices/.test(document.querySelector('#headline').textContent)")
    assert page.text("#drawn-said").startswith("64 devices: Switch of 2, each joining a Switch of 4")
    before = seconds(page.text("#headline"))
    page.set("#drawn-2-bandwidth", "2 GB/s")
    assert seconds(page.text("#headline")) > 1.2 * before
    page.set("#drawn-2-size", "x")
    assert page.text("#status") == "platform file: platform.network[2].size: got 'x', expected a whole number"
    page.set("#drawn-0-topology", "Torus")
    page.set("#drawn-0-size", "4x2")
    page.set("#drawn-2-size", "2")
    assert "on 64 devices" in page.text("#headline")
    # The link has it, and the way back to the preset.
    fragment = page.browser.value("location.hash").removeprefix("#")
    page.open(fragment)
    assert "on 64 devices" in page.text("#headline") and "Torus of 4 \u00d7 2" in page.text("#drawn-said")
    page.click("#drawn-back")
    page.until("/on 32 devices/.test(document.querySelector('#headline').textContent)")
    assert not page.problems()


def test_which_graph_would_i_build(page: Page) -> None:
    page.open(SMALL.replace("4xdgx", "dgx"))
    page.click("#drawn summary")
    page.set("#drawn-kind", "edges")
    page.until("document.querySelectorAll('#graph [data-node]').length === 9")
    assert len(page.rows("links")) == 8 and "on 8 devices" in page.text("#headline")
    # A second switch, joined to a device by keys in the picture; the rows are what the picture is.
    page.click("#graph-switch")
    page.until("document.querySelectorAll('#graph [data-node]').length === 10")
    ready = page.browser.value("document.body.dataset.ready")
    for node in ("npu 3", "switch 0"):
        page.browser.value(f"document.querySelector('[data-node=\"{node}\"]').focus()")
        page.key("Enter", "Enter", 0, 13)
    page.until(f"Number(document.body.dataset.ready) > {ready}")
    ends = "['from', 'to'].map((end) => document.getElementById(`link-9-${end}`).value).join()"
    assert page.browser.value(ends) == "npu 3,switch 0"
    # Answers to what was drawn before may come first.
    page.until("!document.body.classList.contains('busy')")
    before = page.text("#headline")
    page.set("#link-0-bandwidth", "1 GB/s")
    page.until(f"document.querySelector('#headline').innerText !== {before!r}")
    assert seconds(page.text("#headline")) > 1.2 * seconds(before)
    page.set("#link-0-bandwidth", "fast")
    page.until(
        "/: platform.topology.links.0.: bandwidth: got 'fast'/.test(document.querySelector('#status').innerText)"
    )
    page.click("h1")
    page.key("z", "KeyZ", CTRL, 90)
    page.until("document.getElementById('link-0-bandwidth').value === '1 GB/s'")
    page.until("!document.querySelector('#status').textContent")
    # The link has it, the file is one that the reader takes, and there is a way back.
    headline = page.text("#headline")
    page.open(page.browser.value("location.hash").removeprefix("#"))
    assert page.text("#headline") == headline and len(page.rows("links")) == 10
    page.click("#take")
    page.until("document.querySelector('#command')")
    assert "kind: edges" in page.text("#command")
    page.click("#drawn-back")
    page.until("!document.querySelector('#links')")
    assert not page.problems()


def test_does_rail_only_suit_me(page: Page) -> None:
    page.open(SMALL)
    page.set("#choice-machine", "rail-only-h100")
    page.until(
        "/32 devices, a part of the 1,024 of/.test(document.querySelector('#drawn-said')?.textContent)"
    )
    assert "on 32 devices" in page.text("#headline") and not page.text("#approximate")
    before = seconds(page.text("#headline"))
    page.set("#graph-bandwidth", "5 GB/s")
    assert seconds(page.text("#headline")) > before
    assert page.actions <= 3 and not page.problems()
    # What comes later opens the assumptions where there is room.
    page.until("!document.querySelector('#assumptions').textContent.includes('…')")
    for width, theme in ((1280, "light"), (400, "dark")):
        page.size(width, 900, dark=theme == "dark")
        page.until("document.querySelectorAll('#graph .node').length > 40")
        assert page.browser.value("document.documentElement.scrollWidth") <= width
        assert page.browser.value(CONTRAST) == [] and page.browser.value(NAMELESS) == []
        if hostile_browser.AXE.exists():
            assert page.browser.barriers() == []
        share = changed(page.browser, "studio-graph", width, theme)
        assert share <= CHANGED_AT_MOST, f"{width}: {share:.1%} looks different"
    page.size(1280, 900)


def test_does_a_rail_of_1024_devices_suit_me(page: Page) -> None:
    page.open("model=llama-3-70b&machine=rail-only-h100&plan.batch=1024")
    # All of it, by its levels: seconds where messages would take hours.
    assert "on 1,024 devices" in page.text("#headline")
    assert page.text("#approximate").startswith("approximate: the graph of 1,024 devices")
    before = seconds(page.text("#headline"))
    page.click("#drawn summary")
    page.until("document.querySelector('#graph-bandwidth')")
    page.set("#graph-bandwidth", "5 GB/s")
    assert seconds(page.text("#headline")) > before and page.actions <= 3
    # Of as many messages none is moved before somebody says so; who does can end it.
    page.set("#graph-hosts", "4")
    assert not page.text("#approximate")
    page.set("#choice-graph", "levels")
    assert page.text("#approximate").startswith("approximate: the graph of 32 devices")
    assert "graph=levels" in page.browser.value("location.hash") and not page.problems()


def test_what_takes_long_can_be_stopped(page: Page) -> None:
    # A larger model is refused for its memory before anything is simulated.
    page.open("model=llama-3-8b&machine=rail-only-h100&plan.batch=1024")
    before = page.text("#headline")
    page.click("#drawn summary")
    page.until("document.querySelector('#choice-graph')")
    page.browser.value(
        "(() => { const e = document.querySelector('#choice-graph'); e.value = 'messages';"
        "e.dispatchEvent(new Event('change', {bubbles: true})) })()"
    )
    page.until("!document.querySelector('#stop').hidden")
    assert page.text("#status").startswith("simulating")
    page.click("#stop")
    page.until("/^stopped/.test(document.querySelector('#status').textContent)")
    assert page.text("#headline") == before and not page.problems()
