"""How large pages behave: JSON lines, each with its goal. Needs Chromium.

python benchmarks/page.py

A timeline of 1,000,000 slices, a sweep of 10,000 points, and the graph of a trace of 35,701 nodes. A frame costs what
the browser's main thread works for it while the timeline zooms in and out; 30 frames a second leave 33 ms for each.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))
from hostile_browser import Browser, browser
from large_graph import write_large_graph
from large_page import write_large_page
from large_sweep import write_large_sweep

FRAMES = 120
CANVAS = "document.querySelector('.timeline canvas')"
ZOOM = f"""new Promise((done) => {{
  let frame = 0;
  const begun = performance.now();
  const next = () => {{
    if (frame === {FRAMES}) return done((performance.now() - begun) / 1e3);
    const key = (frame++ % 40) < 20 ? "+" : "-";
    {CANVAS}.dispatchEvent(new KeyboardEvent("keydown", {{key}}));
    requestAnimationFrame(next);
  }};
  next();
}})"""


def worked(page: Browser) -> float:
    """Return the seconds that the main thread has worked."""
    metrics = {each["name"]: each["value"] for each in page.ask("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def say(name: str, value: float, unit: str, goal: float) -> None:
    """Print a line."""
    print(json.dumps({"benchmark": name, "value": round(value, 4), "unit": unit, "goal": goal}), flush=True)


def opened(page: Browser, path: Path, ready: str) -> None:
    """Open a page, say when it was first painted, and wait until a piece of JavaScript is true and all is drawn."""
    page.ask("Performance.disable")
    page.ask("Page.navigate", url="about:blank")
    # The time of the thread, which another load on the machine hardly lengthens.
    page.ask("Performance.enable", timeDomain="threadTicks")
    begun = time.perf_counter()
    page.ask("Page.navigate", url=path.as_uri())
    while page.value(f"Boolean({ready})") is not True:
        time.sleep(0.02)
    for _ in range(3):
        page.pause()
    drawn = time.perf_counter() - begun
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    while not (first := page.value(paint)):
        time.sleep(0.05)
    say(f"first paint, {path.stem}", float(first) / 1e3, "s", 1.0)
    say(f"all drawn, {path.stem}", drawn, "s", 2.0)


def cost(page: Browser, script: str, repeats: int = 10) -> float:
    """Return the ms that the main thread works for what a reader did, on average."""
    page.pause()
    before = worked(page)
    for _ in range(repeats):
        page.value(script)
        page.pause()
        page.pause()
    return (worked(page) - before) / repeats * 1e3


def main() -> None:
    """Measure all of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, browser(Path(name)) as page:
        timeline, sweep, graph = (Path(name, f"{each}.html") for each in ("timeline", "sweep", "graph"))
        write_large_page(timeline)
        say("page of a million slices", timeline.stat().st_size / 1e6, "MB", 5.0)
        opened(page, timeline, CANVAS)
        before = worked(page)
        seconds = float(page.value(ZOOM))
        say("work for a frame", (worked(page) - before) / FRAMES * 1e3, "ms", 1000 / 30)
        say("frames a second while zooming", FRAMES / seconds, "1/s", 30.0)
        write_large_sweep(sweep, 10_000)
        say("page of 10,000 points", sweep.stat().st_size / 1e6, "MB", 5.0)
        opened(page, sweep, "document.body?.dataset.drawn")
        chip = "document.querySelectorAll('.chip:not(.none)')[2].click()"
        say("work for a filter of 10,000 points", cost(page, chip), "ms", 200.0)
        write_large_graph(graph)
        say("page of 35,701 nodes", graph.stat().st_size / 1e6, "MB", 5.0)
        opened(page, graph, "document.body?.dataset.boxes")
        pile = "[...document.querySelectorAll('.box.group')].at(-1).dispatchEvent(new MouseEvent('click'))"
        say("work for a pile that opens, up to 160 boxes", cost(page, pile), "ms", 500.0)


if __name__ == "__main__":
    main()
