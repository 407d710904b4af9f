"""A page of a run with very many slices, none of which repeats another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import armillary
from armillary.report.page import write_page
from armillary.report.page.tracks import tracks
from armillary.trace import GraphBuilder, Trace

SLICES = 1_000_000


def write_large_page(path: Path) -> None:
    """Write the page."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder()
    builder.all_reduce("sum", "1 MiB")
    machine = {"network": [{"topology": "Switch", "size": 16, "bandwidth": "400 GB/s", "latency": "1 us"}]}
    one = armillary.simulate(Trace.replicate(builder.graph(), ranks=16), machine)
    end = np.cumsum(rng.integers(1, 1 << 20, SLICES))
    start = np.concatenate(([0], end[:-1]))
    zeros = np.zeros(SLICES, np.int64)
    run = replace(
        one, finish=end[-1:], phase_class=zeros.astype(np.int32), phase_node=zeros.astype(np.int32),
        phase_chunk=zeros.astype(np.int32), phase_index=zeros.astype(np.int16), phase_dim=zeros.astype(np.int16),
        phase_operation=zeros.astype(np.int8), phase_start=start, phase_end=np.maximum((start + end) // 2, start + 1),
        phase_bytes=rng.integers(1, 1000, SLICES), phase_port_bytes=zeros,
    )  # fmt: skip
    write_page("large", [tracks(run)], path)
