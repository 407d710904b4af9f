"""Takes the pictures of the studio in the manual. Needs Chromium, and the extra studio.

python docs/images/draw_studio.py
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "studio"))
from studio_page import Page, hostile_browser, running

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LLAMA = "model=llama-3-70b&machine=64xdgx-h100&plan.batch=1024&plan.parallel.tp=8&plan.parallel.pp=4"
LEVELS = (
    'model=llama-3-70b&machine=dgx-h100&plan.batch=1024&network=[{"name":"nvlink","topology":"Switch","size":8,'
    '"bandwidth":"450 GB/s","latency":"1 us"},{"name":"rail","topology":"Switch","size":16,"bandwidth":"50 GB/s",'
    '"latency":"2 us"},{"name":"pod","topology":"Ring","size":4,"bandwidth":"25 GB/s","latency":"5 us"}]'
)
LINKS = [(f"npu {rank}", f"leaf {rank // 4}", 50) for rank in range(8)]
LINKS += [(f"leaf {leaf}", f"spine {spine}", 100) for leaf in range(2) for spine in range(2)]
GRAPH = "model=llama-2-7b&machine=dgx-h100&plan.batch=64&topology=" + (
    '{"kind":"edges","links":['
    + ",".join(
        f'{{"from":"{one}","to":"{other}","bandwidth":"{rate} GB/s","latency":"500 ns"}}'
        for one, other, rate in LINKS
    )
    + "]}"
)


def take(page: Page, name: str) -> None:
    """Write what the window shows."""
    page.browser.value("scrollTo(0, 0)")
    page.browser.pause()
    data = page.browser.ask("Page.captureScreenshot", format="png")["data"]
    (HERE / f"{name}.png").write_bytes(base64.b64decode(data))


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running() as address,
        hostile_browser.browser(Path(folder)) as browser,
    ):
        page = Page(browser, address)
        page.size(1200, 800)
        page.open(LLAMA)
        page.set("#field-parallel\\.tp", "4")
        page.until("!/…/.test(document.querySelector('#assumptions').innerText)")
        take(page, "studio")
        for name, state in {"studio-drawn": LEVELS, "studio-graph": GRAPH}.items():
            page.open(state)
            page.browser.value("document.querySelector('#controls details').open = true")
            page.until("!/…/.test(document.querySelector('#assumptions').innerText)")
            take(page, name)
        page.open(LLAMA)
        page.drop(*sorted((ROOT / "examples" / "pytorch" / "traces").iterdir()))
        take(page, "studio-trace")


if __name__ == "__main__":
    main()
