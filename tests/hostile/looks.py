"""Compares how a page looks with a small picture of how it looked when a person last saw it."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

import numpy as np
from hostile_browser import Browser
from PIL import Image

KEPT = Path(__file__).parent / "looks"
"""The pictures; `LOOKS=write` makes them anew, to be looked at before they are committed."""
TALLEST = 2400
_SCALE = 0.125
_CHANGED = 24
"""Levels of 255 by which a pixel, which stands for 8 by 8, has changed."""
CHANGED_AT_MOST = 0.02
"""Other numbers, of a batch twice as large, change 1.3 % at most; a missing section that is in sight, 2.3 to 25 %."""


def changed(chromium: Browser, name: str, width: int, theme: str) -> float:
    """Return the share of a page's pixels that changed since its picture was kept; 0 where none is."""
    size = {"width": width, "deviceScaleFactor": 1, "mobile": False}
    chromium.ask("Emulation.setDeviceMetricsOverride", height=900, **size)
    chromium.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    chromium.value("scrollTo(0, 0)")
    chromium.pause()
    chromium.pause()
    height = min(int(chromium.value("document.documentElement.scrollHeight")), TALLEST)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": _SCALE}
    data = chromium.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
    now = Image.open(io.BytesIO(base64.b64decode(data))).convert("L")
    path = KEPT / f"{name}-{width}-{theme}.png"
    if os.environ.get("LOOKS") == "write":
        KEPT.mkdir(exist_ok=True)
        now.save(path, optimize=True)
        return 0.0
    return difference(Image.open(path).convert("L"), now)


def difference(before: Image.Image, now: Image.Image) -> float:
    """Return the share of pixels that differ, on the larger of both canvases."""
    large = (max(before.width, now.width), max(before.height, now.height))
    canvases = []
    for each in (before, now):
        canvas = Image.new("L", large)
        canvas.paste(each)
        canvases.append(np.asarray(canvas, dtype=np.int16))
    return float((np.abs(canvases[0] - canvases[1]) > _CHANGED).mean())
