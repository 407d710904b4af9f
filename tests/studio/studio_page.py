"""A studio in a process of its own, and its page in a browser."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[1] / "hostile" / "hostile_browser.py"
_SPEC = importlib.util.spec_from_file_location("hostile_browser", _FILE)
assert _SPEC and _SPEC.loader
hostile_browser: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hostile_browser)
_MINUTES = 5
ALT, CTRL, SHIFT = 1, 2, 8
PROGRAM = (
    "import sys; from armillary.cli import main; sys.argv = ['armillary', 'studio', '--port', '0']; main()"
)


SMALL = "model=llama-2-7b&machine=4xdgx-h100&plan.batch=64&plan.sequence=2048"
CONTRAST = """(() => {
  const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    if (!e.getClientRects().length) continue;
    if (e.disabled || e.tagName === 'OPTION') continue;
    const a = light(channels(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([e.tagName, e.id, e.textContent.slice(0, 30), ratio]);
  }
  return found;
})()"""
NAMELESS = """[...document.querySelectorAll('button, select, input, [role=tab], summary, progress')].filter((e) =>
  e.getClientRects().length && !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
  .map((e) => e.outerHTML)"""


def seconds(headline: str) -> float:
    found = re.match(r"Step (?:time )?([\d.]+) (ms|s|µs)", headline)
    assert found, headline
    return float(found[1]) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[found[2]]


@contextmanager
def running() -> Iterator[str]:
    """Yield the address of a studio, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the studio says no address"
        yield found[0]
    finally:
        process.terminate()
        process.wait(60)


class Page:
    """The page, and what a person does with it."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address
        self.actions = 0

    def open(self, fragment: str = "") -> None:
        """Open it, with a state; wait until the step is shown."""
        self.browser.events.clear()
        self.actions = 0
        self.browser.ask("Page.navigate", url="about:blank")
        more = f"&{fragment}" if fragment else ""
        self.browser.ask("Page.navigate", url=f"{self.address}{more}")
        self.until("Number(document.body?.dataset.ready) > 0")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.browser.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.ask("Emulation.setEmulatedMedia", features=[scheme])

    def until(self, expression: str) -> Any:
        """Wait until a piece of JavaScript is true, and return what it is."""
        end = time.monotonic() + 60 * _MINUTES
        while time.monotonic() < end:
            # While another page is loaded there is nothing to ask.
            value = self.browser.value(
                f"(() => {{ try {{ return !!({expression}) }} catch {{ return null }} }})()"
            )
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never: {expression}; status: {self.text('#status')}")

    def text(self, selector: str) -> str:
        return str(self.browser.value(f"document.querySelector({selector!r})?.innerText ?? ''"))

    def rows(self, table: str) -> list[list[str]]:
        """Return the texts of the cells of a table."""
        rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
        found: list[list[str]] = self.browser.value(
            f"{rows}.map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        return found

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does: one action."""
        self.actions += 1
        where = self.browser.value(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            "const box = e.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.browser.mouse(kind, *where)
        self.browser.pause()

    def set(self, selector: str, value: str) -> None:
        """Type into a field, or choose from a list: one action; wait for the step that follows."""
        self.actions += 1
        ready = self.browser.value("document.body.dataset.ready")
        self.browser.value(
            f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value!r};"
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true})) })()"
        )
        self.until(f"Number(document.body.dataset.ready) > {ready}")

    def choose(self, *files: Path) -> None:
        """Choose files in the place for them: one action; wait for what follows."""
        self.actions += 1
        ready = self.browser.value("document.body.dataset.ready")
        self.browser.value("document.querySelector('#status').textContent = ''")
        document = self.browser.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.browser.ask("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
        self.browser.ask("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])
        self.until(
            f"Number(document.body.dataset.ready) > {ready}"
            " || /\\S/.test(document.querySelector('#status').innerText.replace(/^(reading|simulating).*/, ''))"
        )

    def drop(self, *files: Path) -> None:
        """Drag files over the page and let them go: one action; wait for what follows."""
        self.actions += 1
        ready = self.browser.value("document.body.dataset.ready")
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.browser.ask("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)
        self.until(f"Number(document.body.dataset.ready) > {ready}")

    def key(self, key: str, code: str, modifiers: int = 0, number: int = 0) -> None:
        """Press a key: one action. Modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        self.actions += 1
        for kind in ("keyDown", "keyUp"):
            self.browser.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                modifiers=modifiers,
                windowsVirtualKeyCode=number,
            )
        self.browser.pause()

    def problems(self) -> list[str]:
        """Return what the page should not have done: errors, refusals of the policy, requests to other hosts."""
        self.browser.pause()
        host = self.address.partition("/#")[0]
        found = []
        for event in self.browser.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {params['message']}")
            if method == "Runtime.exceptionThrown":
                found.append(f"error: {params['exceptionDetails'].get('exception', {}).get('description')}")
            if method == "Log.entryAdded" and params["entry"]["source"] == "security":
                found.append(f"refused: {params['entry']['text']}")
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith((f"{host}/", "data:", "blob:", "about:")):
                    found.append(f"request: {url}")
                if "token" in url.partition("#")[0] or params["request"]["headers"].get("Referer"):
                    found.append(f"token or referrer: {url}")
        if self.browser.value("String(window.__pwned)") != "undefined":
            found.append("a script of others ran")
        return found
