"""Physical topologies of ASTRA-sim's ns-3 back end: numbers of nodes, the switches among them, and links.

::

    9 1 8                        # nodes, switches, links
    8                            # numbers of the switches
    0 8 400Gbps 0.0005ms 0       # two nodes, rate, delay, errors: one line or several, as anyone likes

Nodes that are no switches are hosts, which are NPUs in order of their numbers and pass nothing on.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from armillary.base.document import read_text
from armillary.base.errors import InputError
from armillary.base.units import whole
from armillary.platform.topology.graph import UNBOUNDED, Topology, check_size
from armillary.platform.topology.reach import distances
from armillary.platform.topology.wiring import Wiring

_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([kKMGT]?)(i?)(bps|b/s|Bps|B/s)")
_DELAY = re.compile(r"(\d+(?:\.\d*)?(?:[eE]-?\d{1,2})?|\.\d+)(s|ms|us|ns|ps)")
_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0, "ps": 1e-3}


def parse_rate(text: str) -> float:
    """Return ns-3's ``400Gbps`` in bytes per ns.

    Raises:
        ValueError: It is no such rate.
    """
    match = _RATE.fullmatch(text)
    if not match or match[3] or not float(match[1]):
        raise ValueError(f"got '{text}', expected a rate above 0, e.g. '400Gbps'")
    return float(match[1]) * _PREFIX[match[2]] / (8 if match[4][0] == "b" else 1) / 1e9


def parse_delay(text: str) -> float:
    """Return ns-3's ``0.0005ms`` in ns.

    Raises:
        ValueError: It is no such time.
    """
    match = _DELAY.fullmatch(text)
    if not match:
        raise ValueError(f"got '{text}', expected a time, e.g. '0.0005ms'")
    return float(match[1]) * _TIMES[match[2]]


def read_ns3(path: str | Path, npus: int | None = None) -> tuple[Topology, list[str]]:
    """Return the topology of a file, and what of it is not simulated.

    Args:
        path: The file.
        npus: Number of hosts that are NPUs, the first ones; None: all.

    Raises:
        InputError: It cannot be read, or is malformed; names the line.
    """
    path = Path(path)
    words = _Words(path)
    nodes, count, links = (words.number(what, 0, 2**31 - 1) for what in ("nodes", "switches", "links"))
    # Two words at least for each; before anything is made of the numbers.
    words.expect(count + 5 * links, f"{count} switches and {links} links")
    check_size(path.stem, 2 * links)
    switches = {words.number("a switch", 0, nodes - 1) for _ in range(count)}
    ends, numbers, lossy = [], [], 0
    for _ in range(links):
        pair = [words.number("a node", 0, nodes - 1) for _ in range(2)]
        if pair[0] == pair[1]:
            raise InputError(f"{words.where}: a link leads from node {pair[0]} to itself, expected two")
        ends.append(pair)
        numbers.append((words.quantity(parse_rate), words.quantity(parse_delay)))
        lossy += words.ratio() > 0
    words.end()
    joined = {node for pair in ends for node in pair}
    hosts = sorted(node for node in (joined | set(range(npus or 0))) if node not in switches)
    if npus is not None:
        if hosts[:npus] != list(range(npus)):
            raise InputError(
                f"{path}: ranks are nodes 0 to {npus - 1}, expected {npus} hosts there and no switch"
            )
        hosts = hosts[:npus]
    if not hosts:
        raise InputError(f"{path}: has no host, expected a node with a link that is no switch")
    notes = [f"{path}: {lossy} links lose packets, which is not simulated"] if lossy else []
    chosen = [*hosts, *sorted(switches & joined)]
    number = {node: at for at, node in enumerate(chosen)}
    kept = [at for at, pair in enumerate(ends) if all(node in number for node in pair)]
    if len(kept) < len(ends):
        notes.append(f"{path}: {len(ends) - len(kept)} links of hosts without a rank are left out")
    wiring = Wiring(path.stem, len(hosts))
    wiring.tier("switch", len(chosen) - len(hosts))
    a, b = (np.array([number[ends[at][side]] for at in kept], np.int64) for side in (0, 1))
    rates, delays = (np.array([numbers[at][side] for at in kept]) for side in (0, 1))
    wiring.connect(a, b, "link", rates, delays)
    labels = tuple(f"{'npu' if at < len(hosts) else 'switch'} {node}" for at, node in enumerate(chosen))
    return wiring.topology(labels=labels), notes


def write_ns3(topology: Topology) -> tuple[str, list[str]]:
    """Return the text of such a file, which reads as the same graph, and what of the graph it does not say.

    Rates are rounded to bits per second, delays to ps. NPUs come first, in order of rank.

    Raises:
        InputError: Links differ by direction, or NPUs reach each other over other NPUs only: hosts of ns-3 pass nothing
            on.
    """
    rows: Counter[tuple[int, int, str, str]] = Counter()
    columns = (topology.tail, topology.head, topology.bandwidth, topology.latency)
    for tail, head, rate, latency in zip(*(column.tolist() for column in columns), strict=True):
        if rate > 0:
            rows[tail, head, _plain(rate * 8, 9), _plain(latency, 3)] += 1
    for (tail, head, speed, delay), count in rows.items():
        if rows[head, tail, speed, delay] != count:
            raise InputError(
                f"{topology.called}: {topology.node_name(tail)} to {topology.node_name(head)}: links that differ by "
                "direction, which ns-3's topologies cannot say"
            )
    hosts = replace(topology, forwards=np.arange(topology.nodes) >= topology.npus)
    if (distances(hosts, 0)[: topology.npus] < 0).any():
        raise InputError(
            f"{topology.called}: NPUs reach each other over other NPUs only, and hosts of ns-3 pass nothing on; "
            "expected switches"
        )
    switches = range(topology.npus, topology.nodes)
    lines = [
        f"{tail} {head} {rate}Gbps {latency}ns 0"
        for (tail, head, rate, latency), count in rows.items()
        for _ in range(count)
        if tail < head
    ]
    head = [f"{topology.nodes} {len(switches)} {len(lines)}", " ".join(map(str, switches))]
    lost = ["names of nodes"]
    if (topology.buffer < UNBOUNDED).any():
        lost.append("buffers of links")
    if topology.host:
        lost.append("which NPUs share a host")
    return "\n".join([*head, *lines, ""]), lost


def _plain(value: float, digits: int) -> str:
    """Return a number without an exponent, which ns-3 does not read."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


class _Words:
    """The words of a file, one after the other; line breaks mean nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, -1
        self.words: list[tuple[str, int]] = []
        for number, line in enumerate(read_text(path, "ns-3 topology").split("\n"), 1):
            self.words += [(word, number) for word in re.split(r"//|#", line)[0].split()]

    @property
    def where(self) -> str:
        return (
            f"{self.path}:{self.words[min(max(self.at, 0), len(self.words) - 1)][1]}"
            if self.words
            else str(self.path)
        )

    def expect(self, count: int, what: str) -> None:
        if len(self.words) - self.at - 1 < count:
            raise InputError(f"{self.path}: ends before its {what} are there")

    def take(self) -> str:
        self.at += 1
        if self.at >= len(self.words):
            raise InputError(f"{self.path}: ends too early, expected nodes, switches and links")
        return self.words[self.at][0]

    def number(self, what: str, low: int, high: int) -> int:
        text = self.take()
        value = whole(text)
        if value is None or not low <= value <= high:
            raise InputError(
                f"{self.where}: {what}: got '{text[:40]}', expected a whole number from {low} to {high}"
            )
        return value

    def quantity(self, parse: object) -> float:
        text = self.take()
        try:
            return float(parse(text))  # type: ignore[operator]
        except ValueError as error:
            raise InputError(f"{self.where}: {str(error)[:200]}") from None

    def ratio(self) -> float:
        text = self.take()
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise InputError(f"{self.where}: error rate: got '{text[:40]}', expected a number from 0 to 1")
        return value

    def end(self) -> None:
        if self.at + 1 < len(self.words):
            self.at += 1
            raise InputError(
                f"{self.where}: got '{self.words[self.at][0][:40]}' after the last link, expected nothing"
            )
