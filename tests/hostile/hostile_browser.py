"""Headless Chromium by its debugging pipe: opens pages, moves the mouse, and says what a page tried to do."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1200, 900
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
"""Deque's checker, which `make studio` installs for the tests; no page ships it."""
_ANSWER_SECONDS = 240  # a busy machine is no page's fault


class Browser:
    """One tab, and the events it sent."""

    def __init__(self, folder: Path) -> None:
        program = next(found for name in ("chromium", "google-chrome") if (found := shutil.which(name)))
        into, self._send = os.pipe()
        self._receive, out = os.pipe()
        self.events: list[dict[str, Any]] = []
        self._number, self._rest = 0, b""
        flags = (
            "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --disable-background-networking "
            "--disable-component-update --disable-extensions --use-gl=swiftshader --enable-unsafe-swiftshader "
            f"--remote-debugging-pipe --disable-dev-shm-usage --window-size={WIDTH},{HEIGHT}"
        ).split()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        script = f'exec 3<&{into} 4>&{out}; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, program, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            pass_fds=(into, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(into)
        os.close(out)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        # Answering a dialog meanwhile takes a number too.
        number = self._number = self._number + 1
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _ANSWER_SECONDS
        while True:
            for found in self._messages(end):
                if found.get("id") == number:
                    assert "error" not in found, found
                    result: dict[str, Any] = found["result"]
                    return result
                self._keep(found)

    def _messages(self, end: float) -> Iterator[dict[str, Any]]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(end - time.monotonic(), 0))
            data = os.read(self._receive, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("the browser does not answer")
            self._rest += data
        one, _, self._rest = self._rest.partition(b"\0")
        yield json.loads(one)

    def _keep(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event.get("method") == "Page.javascriptDialogOpening":
            # A dialog would stop the page: the tripwire has it, go on.
            self._number += 1
            message = {
                "id": self._number,
                "method": "Page.handleJavaScriptDialog",
                "params": {"accept": False},
            }
            os.write(self._send, json.dumps({**message, "sessionId": self._session}).encode() + b"\0")

    def value(self, expression: str) -> Any:
        """Return what a piece of JavaScript is, as JSON."""
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def open(self, path: Path) -> None:
        """Open a file, and wait until it is drawn."""
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        for _ in range(600):
            if self.value("document.readyState") == "complete":
                break
            time.sleep(0.1)
        self.pause()

    def pause(self) -> None:
        """Let the page do what it has begun."""
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = {"button": "none"} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def roam(self, clicks: int) -> None:
        """Hover over a grid of the window at each height of the page, and click many of its things."""
        height = int(self.value("Math.min(document.documentElement.scrollHeight, 4 * innerHeight)"))
        for top in range(0, max(height, 1), HEIGHT):
            self.value(f"scrollTo(0, {top})")
            for y in range(20, HEIGHT, 60):
                for x in range(20, WIDTH, 90):
                    self.mouse("mouseMoved", x, y)
        self.value("scrollTo(0, 0)")
        kinds = "button, a, tr, path, circle, rect, text, li, th, .point, canvas, figure"
        things = f"[...document.querySelectorAll('{kinds}')]"
        count = int(self.value(f"{things}.length"))
        for number in range(0, count, max(count // clicks, 1)):
            place = self.value(
                f"(() => {{ const each = {things}[{number}]; if (!each) return null;"
                "each.scrollIntoView({block: 'center'});"
                "const box = each.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] })()"
            )
            if place and 0 < place[0] < WIDTH and 0 < place[1] < HEIGHT:
                for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                    self.mouse(kind, *place)
        self.pause()

    def barriers(self) -> list[str]:
        """Return what axe finds in the page that keeps people out, by the rules of WCAG 2.2 A and AA."""
        # From the top: what a sticky header covers further down counts as too small to hit.
        self.value("scrollTo(0, 0)")
        if self.value("typeof axe") == "undefined":
            self.value(f"{AXE.read_text()}; 0")
        rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        found: list[str] = self.value(
            f"axe.run(document, {{runOnly: {json.dumps(rules)}}}).then((found) => found.violations.flatMap((each) => "
            "each.nodes.map((node) => `${each.id}: ${node.target.join(' ')}: ${node.html.slice(0, 200)}: "
            "${node.any.map((one) => one.message).join('; ')}`)))"
        )
        return found

    def tripped(self) -> list[str]:
        """Return what text of others did in the page: scripts, dialogs, requests, ways out of it."""
        self.pause()
        found = []
        if self.value("String(window.__pwned)") != "undefined":
            found.append(f"script ran: {self.value('String(window.__pwned)')}")
        failed = [event["params"] for event in self.events if event.get("method") == "Network.loadingFailed"]
        blocked = {each["requestId"] for each in failed if each.get("blockedReason") == "csp"}
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {params['message']}")
            if method == "Network.requestWillBeSent" and params["requestId"] not in blocked:
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "blob:")):
                    found.append(f"request: {url[:200]}")
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                text = details.get("exception", {}).get("description", details.get("text"))
                found.append(f"error: {text[:300]}")
            if method == "Log.entryAdded" and params["entry"]["source"] == "security":
                found.append(f"refused: {params['entry']['text'][:300]}")
        if not self.value("location.href").startswith("file:"):
            found.append(f"went to {self.value('location.href')}")
        marks = (
            "[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes].map((a) => "
            "[e.tagName, a.name, a.value])).filter((m) => m[1].startsWith('on') || /href|src$/.test(m[1]))"
        )
        for tag, name, value in self.value(marks):
            if name.startswith("on") or not value.startswith(("#", "data:", "blob:")):
                found.append(f"attribute: {tag} {name}={value[:100]}")
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Yield a browser, and end it."""
    made = Browser(folder)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def is_there() -> bool:
    return any(shutil.which(name) for name in ("chromium", "google-chrome"))
