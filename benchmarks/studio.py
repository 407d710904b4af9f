"""How fast the studio is: JSON lines, each with its goal. Needs the extra studio, and Chromium for the first paint.

python benchmarks/studio.py
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

PROGRAM = (
    "import sys; from armillary.cli import main; sys.argv = ['armillary', 'studio', '--port', '0']; main()"
)
QUESTION: dict[str, Any] = {
    "model": "llama-3-70b",
    "machine": "64xdgx-h100",
    "fabric": 1,
    "peak": 1,
    "software": "",
}
REPEATS = 20


@contextmanager
def running() -> Iterator[tuple[str, str, float]]:
    """Yield host, token, and the seconds from the start of the process to its first answer."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-u", "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://([^/]+)/#token=(\S+)", process.stdout.readline())
        assert found
        connection = HTTPConnection(found[1], timeout=300)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        yield found[1], found[2], time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait()


def asked(host: str, token: str, plan: dict[str, Any], kind: str = "headline") -> float:
    """Return the seconds that an answer takes."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = HTTPConnection(host, timeout=300)
    begun = time.perf_counter()
    body = {"questions": [{**QUESTION, "plan": plan}]} if kind == "ahead" else {**QUESTION, "plan": plan}
    connection.request("POST", f"/api/{kind}", json.dumps(body), headers)
    response = connection.getresponse()
    response.read()
    assert response.status in (200, 202)
    return time.perf_counter() - begun


SLIDERS: dict[str, list[dict[str, Any]]] = {
    "tp, pp": [{"parallel": {"tp": tp, "pp": pp}} for tp in (4, 8) for pp in (4, 8, 16)],
    "microbatch": [{"parallel": {"tp": 8, "pp": 8}, "microbatch": size} for size in (2, 4)],
    "fabric": [{"parallel": {"tp": 8, "pp": 8}, "fabric": factor} for factor in (0.5, 2, 4)],
    "batch": [{"parallel": {"tp": 8, "pp": 8}, "batch": batch} for batch in (4096, 8192)],
}
"""Sliders -> values that are new to a process that has answered others: some keys of a question, else of a plan."""


def moves(model: str, machine: str) -> dict[str, float]:
    """Return the seconds of CPU that a new value of each slider takes: of a clock a busy machine knows nothing."""
    from armillary.studio.answers import headline

    def seconds(given: dict[str, Any]) -> float:
        of_machine = {key: given[key] for key in ("fabric",) if key in given}
        plan = {"batch": 2048, **{key: value for key, value in given.items() if key not in of_machine}}
        begun = time.process_time()
        headline(
            {**QUESTION, "model": model, "machine": machine, **of_machine, "plan": plan}, lambda told: None
        )
        return time.process_time() - begun

    seconds({"parallel": {"tp": 2, "pp": 8}})
    return {name: statistics.median(map(seconds, values)) for name, values in SLIDERS.items()}


def first_paint(host: str, token: str) -> float:
    """Return the seconds until a browser has drawn the page, without its answers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))
    from hostile_browser import browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, browser(Path(folder)) as page:
        page.ask("Page.navigate", url=f"http://{host}/#token={token}")
        while not (
            found := page.value("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        ):
            time.sleep(0.1)
        return float(found) / 1e3


MOVE = """new Promise((done) => {
  const range = document.getElementById(%s), by = Number(range.value) < Number(range.max) ? 1 : -1;
  const begun = performance.now(), ready = Number(document.body.dataset.ready);
  range.value = String(Number(range.value) + by);
  for (const kind of ["input", "change"]) range.dispatchEvent(new Event(kind, { bubbles: true }));
  const look = () => Number(document.body.dataset.ready) > ready
    ? requestAnimationFrame(() => done((performance.now() - begun) / 1e3)) : setTimeout(look, 1);
  look();
})"""
STATE = "model=llama-3-405b&machine=2048xdgx-h100&plan.batch=2048&plan.parallel.tp=8&plan.parallel.pp=16"
LOOKED = 5.0
"""Seconds for which somebody looks at a step before they move a slider."""


def moved(host: str, token: str) -> dict[str, tuple[float, float]]:
    """Return the seconds until the page shows a step of 16,384 GPUs anew, for one place of each slider.

    Twice: after somebody has looked at the step for a while, and a second place further at once.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))
    from hostile_browser import browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, browser(Path(folder)) as page:
        page.ask(
            "Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False
        )
        page.ask("Page.navigate", url=f"http://{host}/#token={token}&{STATE}")
        while not page.value("Number(document.body?.dataset.ready) > 0"):
            time.sleep(0.1)
        sliders = page.value(
            "[...document.querySelectorAll('#controls > .slider > input[type=range]')].map((e) => e.id)"
        )
        found = {}
        for slider in sliders:
            time.sleep(LOOKED)
            first = float(page.value(MOVE % json.dumps(slider)))
            found[slider] = first, float(page.value(MOVE % json.dumps(slider)))
            for _ in range(2):
                page.value("document.querySelector('#undo').click()")
                page.pause()
        return found


def wheel_growth() -> int:
    """Return the bytes that the files of the studio and of its scripts add to a wheel."""
    import io
    import zipfile

    source, packed = Path(__file__).parents[1] / "src" / "armillary", io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in ("web", "studio"):
            for file in sorted((source / name).rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    wheel.write(file)
    return len(packed.getvalue())


def say(name: str, value: float, unit: str, goal: float) -> None:
    """Print a line."""
    print(json.dumps({"benchmark": name, "value": round(value, 4), "unit": unit, "goal": goal}), flush=True)


def main() -> None:
    """Measure all of it."""
    # The first start fills Python's caches.
    with running():
        pass
    with running() as (host, token, start):
        say("start", start, "s", 2.0)
        say("first answer", asked(host, token, {"batch": 1024}), "s", 5.0)
        again = [asked(host, token, {"batch": 1024}) for _ in range(REPEATS)]
        say("answer that was asked before", statistics.median(again), "s", 0.1)
        plans = [{"batch": 1024, "parallel": {"tp": tp, "pp": pp}} for tp in (2, 4, 8) for pp in (2, 4, 8)]
        for plan in plans:
            asked(host, token, plan)
        say(
            "new batch",
            statistics.median(asked(host, token, {**plan, "batch": 2048}) for plan in plans),
            "s",
            1.0,
        )
        # What the page does while the pointer is on a slider.
        ahead = {"batch": 1024, "parallel": {"tp": 8, "pp": 16}}
        asked(host, token, ahead, "ahead")
        time.sleep(20)
        say("value that was predicted ahead", asked(host, token, ahead), "s", 0.1)
        if any((Path(folder) / "chromium").exists() for folder in os.environ["PATH"].split(os.pathsep)):
            say("first paint", first_paint(host, token), "s", 1.0)
            for name, (looked, at_once) in moved(host, token).items():
                say(f"{name} of 16,384 GPUs, after a look", looked, "s", 0.1)
                say(f"{name} of 16,384 GPUs, a place further at once", at_once, "s", 0.3)
    for model, machine in (("llama-3-70b", "64xdgx-h100"), ("llama-3-405b", "2048xdgx-h100")):
        for name, seconds in moves(model, machine).items():
            say(f"new {name}, {model} on {machine}, CPU", seconds, "s", 0.1)
    say("wheel growth", wheel_growth() / 1e6, "MB", 1.5)


if __name__ == "__main__":
    main()
