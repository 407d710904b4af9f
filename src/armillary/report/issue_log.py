"""A simulator's log of issues and callbacks, as Chakra's timeline visualizer reads it, as a timeline.

Each line is ``issue,<any>=<npu>,<any>=<cycle>,<any>=<node id>,<any>=<node name>`` or the same with ``callback``;
names may contain commas and equal signs. Other lines are left out.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from armillary.base.errors import InputError
from armillary.base.reading import MOST_TEXT, read_bytes
from armillary.report import chrome_trace
from armillary.report.time_breakdown import lanes

_MEGAHERTZ = {
    unit: Fraction(scale) / 10**6
    for unit, scale in {"": 10**6, "hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}.items()
}
_TRACKS = (
    ("local memory", r"MEM_(LOAD|STORE)_NODE.*LOCAL_MEMORY|LOCAL_MEMORY.*MEM_(LOAD|STORE)_NODE"),
    ("remote memory", r"MEM_(LOAD|STORE)_NODE"),
    ("communication", r"COMM_(SEND|RECV|COLL)_NODE"),
    ("compute", r"COMP_NODE"),
)
_FIELDS = ("npu", "cycle", "node id")


@dataclass(frozen=True)
class Found:
    """Counts of a log."""

    nodes: int
    unfinished: int
    """Nodes that were issued but never called back."""
    skipped: int
    """Lines that are neither an issue nor a callback."""


@dataclass(frozen=True)
class _Run:
    npu: int
    node: int
    name: str
    begin: int
    end: int


def parse_frequency(text: str) -> Fraction:
    """Return a clock in MHz: a number, or one with a unit such as ``1.5GHz``.

    Raises:
        InputError: it is none, or not positive.
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _MEGAHERTZ or not Fraction(match[1]):
        raise InputError(f"frequency {text!r}: expected MHz such as '1500', or a unit such as '1.5GHz'")
    return Fraction(match[1]) * _MEGAHERTZ[match[2].lower()]


def write_issue_log(
    log: str | os.PathLike[str], path: str | os.PathLike[str], npus: int, megahertz: Fraction
) -> Found:
    """Write the log as Chrome trace events, a process for each NPU and threads as Chakra has them.

    Args:
        log: the file to read.
        path: the file to write; compressed if it ends in ``.gz``.
        npus: number of NPUs.
        megahertz: cycles per µs.

    Raises:
        InputError: a line is malformed (the error names its number), the log is empty, or a file cannot be read or
            written.
    """
    try:
        # Universal newlines, as of a file that is opened as text.
        lines = io.StringIO(str(read_bytes(log, MOST_TEXT), "utf-8", "replace"), newline=None)
        runs, unfinished, skipped = _read(lines, os.fspath(log), npus)
    except OSError as error:
        raise InputError(f"{log}: {error.strerror}, expected a readable log") from error
    if not runs:
        raise InputError(
            f"{log}: no node was issued and called back, expected lines such as {_example('issue')}"
        )
    about = {"producer": "armillary", "npus": npus, "megahertz": float(megahertz)}
    chrome_trace.write(path, about, _events(runs, megahertz))
    return Found(len(runs), unfinished, skipped)


def _example(kind: str) -> str:
    return f"'{kind},npu_id=0,cycle=100,node_id=7,node_name=COMP_NODE_7'"


def _read(lines: Iterable[str], source: str, npus: int) -> tuple[list[_Run], int, int]:
    runs: list[_Run] = []
    issued: dict[tuple[int, int], tuple[str, int]] = {}
    skipped = 0
    for number, line in enumerate(lines, 1):
        # Simulators write other lines between these, which are counted but not refused.
        kind, _, rest = line.rstrip("\r\n").partition(",")
        if kind not in ("issue", "callback"):
            skipped += bool(line.strip())
            continue
        where = f"{source}: line {number}"
        npu, cycle, node, name = _fields(rest, kind, where)
        if npu >= npus:
            raise InputError(f"{where}: npu {npu}, expected one from 0 to {npus - 1} (--num_npus {npus})")
        if kind == "issue":
            if (npu, node) in issued:
                raise InputError(
                    f"{where}: node {node} of npu {npu} is issued again, expected its callback first"
                )
            issued[npu, node] = name, cycle
            continue
        if (npu, node) not in issued:
            raise InputError(f"{where}: callback of node {node} of npu {npu}, expected its issue first")
        name, begin = issued.pop((npu, node))
        if cycle < begin:
            raise InputError(
                f"{where}: cycle {cycle}, expected at least {begin}, when node {node} was issued"
            )
        runs.append(_Run(npu, node, name, begin, cycle))
    return runs, len(issued), skipped


def _fields(rest: str, kind: str, where: str) -> tuple[int, int, int, str]:
    # The name is the last field, so commas in it are kept.
    parts = rest.split(",", 3)
    values = [part.partition("=")[2] for part in parts]
    if len(parts) < 4 or "=" not in parts[3]:
        raise InputError(f"{where}: {rest[:80]!r} after '{kind}', expected a line such as {_example(kind)}")
    for field, value in zip(_FIELDS, values, strict=False):
        # 19 digits are the most that an int64 may need.
        if not re.fullmatch(r"\s*\d{1,19}\s*", value, re.ASCII):
            raise InputError(
                f"{where}: {field} is {value[:40]!r}, expected a whole number, as in {_example(kind)}"
            )
    return int(values[0]), int(values[1]), int(values[2]), values[3]


def _events(runs: list[_Run], megahertz: Fraction) -> Iterator[str]:
    tracks: dict[tuple[int, int], list[_Run]] = {}
    for run in runs:
        tracks.setdefault((run.npu, _track(run.name)), []).append(run)
    titles = [*(title for title, _ in _TRACKS), "other"]
    tid = 0
    last = -1
    for (npu, track), members in sorted(tracks.items(), key=lambda item: item[0]):
        pid = npu + 1  # process 0 is the idle process to Perfetto
        if npu != last:
            yield chrome_trace.metadata(pid, 0, "process_name", {"name": f"npu {npu}"})
            last = npu
        # Of runs with one begin the longest first, so that the lowest thread has it.
        members.sort(key=lambda run: (run.begin, -run.end))
        # Exact fractions: cycles of 1.41 GHz are no whole ns.
        spans = [(round(run.begin * 1000 / megahertz), round(run.end * 1000 / megahertz)) for run in members]
        latest = max(max(span) for span in spans)
        if latest >= 2**63:
            raise InputError(
                f"npu {npu}: cycle {max(max(run.begin, run.end) for run in members)} is {latest:.2g} ns at "
                f"{float(megahertz):g} MHz, expected one before 9.2e18 ns"
            )
        level = lanes(*np.array(spans, dtype=np.int64).T)
        of_lane: list[list[int]] = [[] for _ in range(int(level.max()) + 1)]
        for at, lane in enumerate(level.tolist()):
            of_lane[lane].append(at)
        for extra, own in enumerate(of_lane):
            tid += 1
            name = titles[track] if not extra else f"{titles[track]} ({extra + 1})"
            yield chrome_trace.metadata(pid, tid, "thread_name", {"name": name})
            yield chrome_trace.metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
            for at in own:
                run = members[at]
                args = {"node": chrome_trace.identifier(run.node), "cycles": run.end - run.begin}
                text = chrome_trace.rest(run.name or "node", titles[track], args)
                yield chrome_trace.slice_(pid, tid, *spans[at], text)


def _track(name: str) -> int:
    # In this order: the form of remote memory fits local memory, too.
    for number, (_, form) in enumerate(_TRACKS):
        if re.search(form, name):
            return number
    return len(_TRACKS)
