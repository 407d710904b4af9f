"""Draw the figure of the first page: `python docs/images/draw_step.py` writes step.svg beside it.

A pipeline of four stages is simulated, and each bar is what a rank did: a task of a microbatch, communication once all
members are there, or the optimizer. Bars light up as time passes, every 12 s, unless the reader prefers less motion.
"""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

import armillary
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.critical import Late
from armillary.report.time_breakdown import Spans

STUDY = """
workload:
  generate:
    model: llama-3-8b
    batch: 16
    sequence: 4096
    parallel: {pp: 4}
    data: {sharding: zero-1}
platform:
  network:
    - {name: nvlink, topology: Switch, size: 4, bandwidth: 450 GB/s, latency: 1 us}
    - {name: rail, topology: Switch, size: 2, bandwidth: 50 GB/s, latency: 5 us}
  npu:
    peak: {bf16: 989 TFLOP/s, fp32: 67 TFLOP/s}
    memory: {bandwidth: 3.35 TB/s, capacity: 80 GB}
  compute: {efficiency: 50 %}
"""
WIDTH, LEFT, TOP, ROW, BAR = 720, 62, 8, 40, 30
COLOURS = {"forward": "#2f6aa8", "backward": "#7552a3", "communication": "#c26a1b", "optimizer": "#2f7d57"}
GREY = "#77818d"
LAYERS = 8
"""Layers of a stage: so many of its forward passes are one task."""
Bar = tuple[str, int, int]


def tasks(timeline: Timeline, cls: int) -> list[Bar]:
    """Return what a rank of a class did: what, its first and its last tick."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    order = [int(i) for i in np.argsort(start, kind="stable") if end[i] > start[i]]
    computing = [i for i in order if KINDS[table.kind[i]] == "compute"]
    named: list[tuple[str, int]] = []
    what = "optimizer"
    # GEMMs say which pass they are of; what runs before one is of the same.
    for i in reversed(computing):
        name = table.name[i]
        if name.endswith(".gemm"):
            what = "forward"
        elif name.endswith((".input", ".weight")):
            what = "backward"
        named.append(("optimizer" if name in ("optimizer", "gradient norm") else what, i))
    bars: list[Bar] = []
    attended = 0
    for what, run in groupby(reversed(named), key=lambda each: each[0]):
        begin = last = -1
        for _, i in run:
            # A wait, or the forward pass of another microbatch, begins a bar.
            if begin >= 0 and (
                start[i] > last or (attended == LAYERS and table.name[i] == "attention.norm.norm")
            ):
                bars.append((what, begin, last))
                begin, attended = -1, 0
            attended += table.name[i] == "core.attend"
            begin = int(start[i]) if begin < 0 else begin
            last = int(end[i])
        bars.append((what, begin, last))
        attended = 0
    active = Spans(timeline, cls, Late(timeline)).active
    calls = [i for i in order if KINDS[table.kind[i]] == "collective"]
    return bars + [("communication", int(active[i]), int(end[i])) for i in calls]


def figure() -> str:
    """Return the text of the SVG file."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder, "step.yaml")
        study.write_text(STUDY)
        timeline = armillary.run(study).run
    classes = range(len(timeline.representative))
    height = TOP + ROW * len(classes) + 46
    scale = (WIDTH - LEFT - 8) / timeline.total_ticks
    bars = []
    for cls in classes:
        y = TOP + ROW * cls
        for what, start, end in tasks(timeline, cls):
            bars.append(
                f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{max((end - start) * scale - 0.6, 0.6):.2f}" '
                f'height="{BAR}" rx="1.5" fill="{COLOURS[what]}"/>'
            )
    labels = [f'<text x="0" y="{TOP + ROW * cls + 20}" fill="{GREY}">stage {cls}</text>' for cls in classes]
    x = LEFT
    for what, colour in COLOURS.items():
        labels.append(f'<rect x="{x}" y="{height - 20}" width="12" height="12" rx="2" fill="{colour}"/>')
        labels.append(f'<text x="{x + 17}" y="{height - 9}" fill="{GREY}">{what}</text>')
        x += 34 + 8 * len(what)
    seconds = timeline.total_ticks / 1e9
    labels.append(
        f'<text x="{WIDTH - 8}" y="{height - 9}" fill="{GREY}" text-anchor="end">one step: {seconds:.3f} s</text>'
    )
    right, bottom = WIDTH - 8, TOP + ROW * len(classes)
    style = (
        f"#seen rect{{transform-origin:{LEFT}px 0;animation:seen 12s linear infinite}}"
        f"#now{{animation:now 12s linear infinite}}"
        "@keyframes seen{0%{transform:scaleX(0)}75%,100%{transform:scaleX(1)}}"
        f"@keyframes now{{0%{{transform:translateX(0)}}75%,100%{{transform:translateX({right - LEFT}px)}}}}"
        "@media (prefers-reduced-motion: reduce){#seen rect,#now{animation:none}#now{visibility:hidden}}"
    )
    drawn = "\n".join(bars)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img">\n'
        "<title>A training step of Llama 3 8B on a pipeline of four stages, as it was simulated</title>\n"
        f"<style>{style}</style>\n"
        f'<defs><g id="bars">\n{drawn}\n</g><clipPath id="seen">'
        f'<rect x="{LEFT}" y="0" width="{right - LEFT}" height="{bottom}"/></clipPath></defs>\n'
        f'<use href="#bars" opacity="0.2"/>\n<g clip-path="url(#seen)"><use href="#bars"/></g>\n'
        f'<line id="now" x1="{LEFT}" x2="{LEFT}" y1="2" y2="{bottom - 4}" stroke="{GREY}" stroke-width="1.5"/>\n'
        + "\n".join(labels)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("step.svg").write_text(figure(), encoding="utf-8")
