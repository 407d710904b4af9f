"""Counters of links over time, as Chrome trace events."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from armillary.engine.common.network_use import NetworkUse
from armillary.engine.transport.layout import PS
from armillary.report import chrome_trace
from armillary.report.links import busiest, link_name

LINKS_SHOWN = 64
PROCESS = "network links"


def counters(network: NetworkUse, pid: int, order: int) -> Iterator[str]:
    """Yield the process of links: for each of the busiest its utilisation, and bytes that waited if any did.

    Args:
        network: What the links did.
        pid: Number of the process.
        order: Its place among processes.
    """
    yield chrome_trace.metadata(pid, 0, "process_name", {"name": PROCESS})
    yield chrome_trace.metadata(pid, 0, "process_sort_index", {"sort_index": order})
    use, series = network.use, network.series
    starts = np.arange(series.shape[1]) * use.bin
    for link in busiest(network, LINKS_SHOWN):
        name = link_name(network.topology, link)
        percent = [round(100 * share, 2) for share in series[link].tolist()]
        yield from _counter(pid, f"{name}: utilisation", "percent", starts.tolist(), percent, network.end)
        if use.depth[link]:
            depths = use.depths[link].tolist()
            yield from _counter(pid, f"{name}: queue", "bytes", starts.tolist(), depths, network.end)


def _counter(
    pid: int, name: str, unit: str, starts: list[int], values: list[int] | list[float], end: int
) -> Iterator[str]:
    """Yield a counter where it changes; it ends with 0."""
    # Perfetto does not undo the escapes of counter names.
    begin = f'{{"ph":"C","pid":{pid},"tid":0,"ts":'
    rest = f',"name":{json.dumps(name, ensure_ascii=False)},"args":{{"{unit}":'
    before: int | float = -1
    for at, value in zip([*starts, max(end, starts[-1] + 1 if starts else 0)], [*values, 0], strict=True):
        if value != before:
            yield f"{begin}{chrome_trace.micros(round(at / PS))}{rest}{value}}}}}"
        before = value
