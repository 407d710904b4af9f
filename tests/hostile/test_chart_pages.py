# ruff: noqa: E501 - pieces of JavaScript
"""Pages of sweeps and validations in a real browser: they filter by drag, click and brush, and fit a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_browser import Browser
from large_sweep import write_large_sweep

from armillary.evidence.validate.page import write_html as write_validation
from armillary.evidence.validate.table import Row, Table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sweep_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 11,520 points of the made-up sweep of the tests of views."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.html"
    write_large_sweep(path)
    return path


LONG = 10_000


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A validation of 10,000 rows."""
    rows = [Row(f"row {i}", 10.0 + i, (10.0 + i) * (1 + i % 101 / 500), "ab"[i % 2]) for i in range(LONG)]
    path = tmp_path_factory.mktemp("long") / "validation.html"
    write_validation([Table("one", "One", "us", "a source", tuple(rows), "blind")], path)
    return path


@pytest.fixture(scope="module")
def validation_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        Row(
            f"row {i}",
            10.0 * (1 + i),
            (10.0 + (i % 7 - 3)) * (1 + i),
            "ab"[i % 2],
            low=8.0 * (1 + i),
            high=13.0 * (1 + i),
        )
        for i in range(40)
    ]
    rows.append(Row("<b>no</b>", 5.0, float("nan"), "a", reason="<i>too small</i>"))
    path = tmp_path_factory.mktemp("validation") / "validation.html"
    write_validation([Table("one", "One", "us", "a source", tuple(rows), "blind")], path)
    return path


def opened(chromium: Browser, page: Path, width: int = 1280, theme: str = "light") -> None:
    chromium.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    chromium.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    chromium.open(page)
    # A sweep draws its charts one after the other.
    for _ in range(600):
        if page.name != "sweep.html" or chromium.value("document.body.dataset.drawn") == "all":
            break
        chromium.pause()
    chromium.pause()


def kept(chromium: Browser) -> str:
    chromium.pause()
    chromium.pause()
    return str(chromium.value("document.getElementById('kept').textContent"))


def press(chromium: Browser, words: str) -> None:
    chromium.value(
        f"[...document.querySelectorAll('button')].find((each) => each.textContent.startsWith({words!r})).click()"
    )
    chromium.pause()


def drag(chromium: Browser, place: str, one: tuple[float, float], other: tuple[float, float]) -> None:
    """Drag the mouse over an element, between two corners as shares of its width and height."""
    left, top, wide, high = chromium.value(
        f"(() => {{ const each = document.querySelector('{place}'); each.scrollIntoView({{block: 'center'}});"
        "const box = each.getBoundingClientRect(); return [box.x, box.y, box.width, box.height] })()"
    )
    ends = [(left + wide * x, top + high * y) for x, y in (one, other)]
    middle = ((ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2)
    chromium.mouse("mouseMoved", *ends[0])
    chromium.mouse("mousePressed", *ends[0])
    for step in (middle, ends[1]):
        chromium.ask(
            "Input.dispatchMouseEvent", type="mouseMoved", x=step[0], y=step[1], button="left", buttons=1
        )
    chromium.mouse("mouseReleased", *ends[1])
    chromium.pause()


@pytest.mark.parametrize("kind", ["sweep", "validation"])
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (400, "dark")])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_window(
    chromium: Browser, kind: str, width: int, theme: str, request: pytest.FixtureRequest
) -> None:
    opened(chromium, request.getfixturevalue(f"{kind}_page"), width, theme)
    assert chromium.tripped() == []
    assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
    empty = chromium.value(
        "[...document.querySelectorAll('.chart')].filter((each) => { const c = each.querySelector('canvas'); if (!c) return true;"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const found = new Set();"
        "for (let i = 0; i < d.length; i += 4) found.add(d[i] << 16 | d[i+1] << 8 | d[i+2]); return found.size < 5 }).map((each) => each.id)"
    )
    assert empty == []


def test_every_control_of_a_sweep_filters(chromium: Browser, sweep_page: Path) -> None:
    opened(chromium, sweep_page)
    assert kept(chromium) == ""
    # A rectangle over the fast half of the points; a chip for each measure ends it.
    drag(chromium, "#scatter", (0.12, 0.2), (0.4, 0.85))
    within = kept(chromium)
    assert within.endswith(" of 4,549 ok points are kept") and not within.startswith(("0 ", "4,549"))
    press(chromium, "step time from")
    press(chromium, "headroom from")
    assert kept(chromium) == ""
    # A cell keeps one value of both axes, and a second click all.
    cell = ((0.4, 0.5), (0.4, 0.5))
    drag(chromium, "#heat", *cell)
    assert "of 4,549" in kept(chromium)
    assert chromium.value("document.querySelectorAll('.chip[aria-pressed=true]').length") == 2
    drag(chromium, "#heat", *cell)
    assert kept(chromium) == ""
    # A brush along the first axis: its upper half.
    x = chromium.value("40 / document.getElementById('parallel').clientWidth")
    drag(chromium, "#parallel", (x, 0.2), (x, 0.45))
    assert "of 4,549" in kept(chromium)
    press(chromium, "clear filters")
    assert kept(chromium) == ""
    press(chromium, "interleaved")
    assert kept(chromium).startswith("1,912 of")
    press(chromium, "clear filters")
    # A point of the table goes into the middle of the tornado.
    chromium.value("document.querySelectorAll('#table button')[3].click()")
    chromium.pause()
    number = chromium.value("document.querySelectorAll('#table button')[3].textContent")
    assert chromium.value("document.getElementById('base').textContent").startswith(f"point {number}:")
    assert chromium.tripped() == []


def test_every_control_of_a_validation_works(chromium: Browser, validation_page: Path) -> None:
    opened(chromium, validation_page)
    rows = "[...document.querySelectorAll('section:last-of-type tbody tr')]"
    assert chromium.value(f"{rows}.length") == 41
    press(chromium, "b")
    assert chromium.value(f"{rows}.length") == 20
    press(chromium, "all")
    press(chromium, "measured")
    assert chromium.value(f"{rows}[0].cells[0].textContent") == "row 39"
    press(chromium, "measured")
    assert chromium.value(f"{rows}[0].cells[0].textContent") == "<b>no</b>"
    press(chromium, "show errors")
    assert chromium.value(
        "[...document.querySelectorAll('button')].some((each) => each.textContent === 'show predicted')"
    )
    assert chromium.tripped() == []


def seen(chromium: Browser, place: str) -> list[str]:
    """Return the second cells of the rows that the window of a long table shows."""
    found: list[str] = chromium.value(
        f"(() => {{ const place = document.querySelector('{place}'), edge = place.getBoundingClientRect();"
        "return [...place.querySelectorAll('tbody tr:not(.room)')].filter((row) => { const box = row.getBoundingClientRect();"
        "return box.bottom > edge.top && box.top < edge.bottom }).map((row) => row.cells[1].textContent) })()"
    )
    return found


@pytest.mark.parametrize("kind", ["validation", "sweep"])
def test_a_table_of_thousands_of_rows_makes_those_that_are_seen(
    chromium: Browser, long_page: Path, sweep_page: Path, kind: str
) -> None:
    opened(chromium, long_page if kind == "validation" else sweep_page)
    place = "section:last-of-type .scroll" if kind == "validation" else "#table"
    rows = LONG if kind == "validation" else 4549
    assert chromium.value(f"document.querySelector('{place} table').ariaRowCount") == str(rows + 1)
    for share in (0.0, 0.5, 1.0, 0.25):
        chromium.value(
            f"(() => {{ const e = document.querySelector('{place}'); e.scrollIntoView(); e.scrollTop = {share} * (e.scrollHeight - e.clientHeight) }})()"
        )
        chromium.pause()
        chromium.pause()
        assert len(seen(chromium, place)) > 8
        assert chromium.value(f"document.querySelectorAll('{place} tbody tr').length") < 80
        at = chromium.value(
            f"Number(document.querySelector('{place} tbody tr:nth-child(12)').ariaRowIndex) - 2"
        )
        assert at == pytest.approx(share * rows, abs=0.02 * rows)
    # The last row is there, and what has the focus keeps it while it is in sight.
    chromium.value(
        f"(() => {{ const e = document.querySelector('{place}'); e.scrollTop = e.scrollHeight }})()"
    )
    chromium.pause()
    last = f"document.querySelector('{place} tbody').rows"
    assert chromium.value(f"[...{last}].at(-2).ariaRowIndex") == str(rows + 1)
    if kind == "validation":
        press(chromium, "measured")
        assert chromium.value(f"document.querySelector('{place}').scrollTop") == 0
        assert (
            seen(chromium, place)[0] == "b"
            and chromium.value(f"{last}[1].cells[0].textContent") == f"row {LONG - 1}"
        )
        press(chromium, "b")
        assert chromium.value(f"document.querySelector('{place} table').ariaRowCount") == str(LONG // 2 + 1)
    else:
        chromium.value(f"document.querySelectorAll('{place} button')[20].focus()")
        number = chromium.value("document.activeElement.textContent")
        chromium.value(f"document.querySelector('{place}').scrollTop -= 60")
        chromium.pause()
        assert chromium.value("document.activeElement.textContent") == number
        chromium.value(f"document.querySelector('{place}').scrollTop = 0")
        chromium.pause()
        assert chromium.value("document.activeElement.id") == "table"
    # On paper all of them stand.
    chromium.value("dispatchEvent(new Event('beforeprint'))")
    assert chromium.value(f"document.querySelectorAll('{place} tbody tr:not(.room)').length") >= rows // 2
    assert chromium.tripped() == []
