"""How a page with a timeline of 1,000,000 slices behaves: JSON lines, each with its goal. Needs Chromium.

python benchmarks/page.py

A frame costs what the browser's main thread works for it while the timeline zooms in and out, which another load on the
machine lengthens less than it lowers frames per second; 30 frames a second leave 33 ms for each.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))
from hostile_browser import Browser, browser
from large_page import write_large_page

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


def main() -> None:
    """Measure all of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        path = Path(name, "large.html")
        write_large_page(path)
        say("page of a million slices", path.stat().st_size / 1e6, "MB", 5.0)
        with browser(Path(name)) as page:
            page.ask("Performance.enable")
            page.ask("Page.navigate", url=path.as_uri())
            while page.value(f"Boolean({CANVAS})") is not True:
                time.sleep(0.05)
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            while not (first := page.value(paint)):
                time.sleep(0.05)
            say("first paint", float(first) / 1e3, "s", 1.0)
            page.pause()
            before = worked(page)
            seconds = float(page.value(ZOOM))
            say("work for a frame", (worked(page) - before) / FRAMES * 1e3, "ms", 1000 / 30)
            say("frames a second while zooming", FRAMES / seconds, "1/s", 30.0)


if __name__ == "__main__":
    main()
