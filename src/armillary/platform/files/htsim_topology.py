"""Topologies of htsim (``.topo``, as its data-centre programs read them): fat trees of two or three tiers.

A header (``Nodes``, ``Tiers``, ``Podsize``), then for each tier, from the switches at the hosts upwards, a line
``Tier N`` and its keys, one a line; ``#`` begins a comment and case does not count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.base.document import read_text
from armillary.base.errors import InputError, nearest
from armillary.base.units import whole
from armillary.platform.topology.graph import UNBOUNDED, Topology, check_size
from armillary.platform.topology.wiring import Wiring

_HEADER = ("nodes", "tiers", "podsize")
_NEEDED = ("downlink_speed_gbps", "radix_down", "downlink_latency_ns")
_KEYS = (*_NEEDED, "radix_up", "switch_latency_ns", "queue_up", "queue_down", "oversubscribed", "bundle")
_NAMES = ("tor", "aggregation", "core")


def read_htsim(path: str | Path, nic: float | None = None) -> Topology:
    """Return the topology of a file.

    Args:
        path: The file.
        nic: Bytes per ns that a host sends at; None: as fast as its switch sends to it, which the file states. Htsim
            takes its option ``-linkspeed``.

    Raises:
        InputError: It cannot be read, or does not describe such a tree; names the line.
    """
    path = Path(path)
    header, tiers = _parsed(path)
    for key in _HEADER:
        if key not in header:
            raise InputError(f"{path}: missing key '{key.capitalize()}'")
    hosts, count, pod = (header[key] for key in _HEADER)
    if count not in (2, 3) or len(tiers) != count:
        raise InputError(
            f"{path}: Tiers: got {count} and {len(tiers)} of them, expected 2 or 3, each with its keys"
        )
    for at, tier in enumerate(tiers):
        for key in (*_NEEDED, *(("radix_up",) if at < count - 1 else ())):
            if key not in tier:
                raise InputError(f"{path}: tier {at}: missing key '{key.capitalize()}'")
    down = [tier["radix_down"] for tier in tiers]
    up = [tier.get("radix_up", 0) for tier in tiers]
    cables = [1, *(tier.get("bundle", 1) for tier in tiers[1:])]
    pods = _divided(path, "Nodes", hosts, pod, "Podsize")
    tors = _divided(path, "Podsize", pod, down[0], "Radix_Down of tier 0")
    middle = _divided(path, "Radix_Up of tier 0", up[0], cables[1], "Bundle of tier 1")
    if count == 2 and pods > 1:
        raise InputError(
            f"{path}: {pods} pods and no third tier: nothing joins them, expected Podsize {hosts}"
        )
    _equal(path, "Radix_Down of tier 1", down[1], tors * cables[1], "switches below it, each by its bundle")
    tops = 0
    if count == 3:
        each = _divided(path, "Radix_Up of tier 1", up[1], cables[2], "Bundle of tier 2")
        tops = middle * each
        _equal(path, "Radix_Down of tier 2", down[2], pods * cables[2], "pods, each by its bundle")
    check_size(path.stem, 2 * (hosts + pods * tors * up[0] + pods * middle * up[1]))
    wiring = Wiring(path.stem, hosts)
    host = np.arange(hosts)
    tor = wiring.tier(_NAMES[0], pods * tors)
    first = wiring.tier(_NAMES[1] if count == 3 else "spine", pods * middle)
    _join(wiring, tiers, 0, host, tor[host // down[0]], 1, nic)
    number, place, cable = np.indices((pods * tors, middle, cables[1]))
    _join(wiring, tiers, 1, tor[number].ravel(), first[number // tors * middle + place].ravel(), cable.size)
    if count == 3:
        core = wiring.tier(_NAMES[2], tops)
        number, place, cable = np.indices((pods * middle, tops // middle, cables[2]))
        ends = core[number % middle * (tops // middle) + place]
        _join(wiring, tiers, 2, first[number].ravel(), ends.ravel(), cable.size)
    block = [
        host // pod,
        np.arange(pods * tors) // tors,
        np.arange(pods * middle) // middle,
        np.full(tops, -1),
    ]
    return wiring.topology(block=np.concatenate(block))


def _join(
    wiring: Wiring,
    tiers: list[dict[str, int]],
    at: int,
    below: object,
    above: object,
    many: int,
    nic: float | None = None,
) -> None:
    """Add the links below tier `at`; what a switch takes is part of the links that lead to it."""
    tier = tiers[at]
    rate, latency = tier["downlink_speed_gbps"] / 8, tier["downlink_latency_ns"]
    lower = tiers[at - 1].get("switch_latency_ns", 0) if at else 0
    rooms = tiers[at - 1].get("queue_up", 0) if at else 0, tier.get("queue_down", 0)
    kind = f"{'npu' if not at else _NAMES[at - 1]}-{_NAMES[at]}"
    up, down = (room or UNBOUNDED for room in rooms)
    own = tier.get("switch_latency_ns", 0)
    wiring.connect(below, above, kind, nic or rate, latency + own, buffer=up, one_way=True)  # type: ignore[arg-type]
    wiring.connect(above, below, kind, rate, latency + lower, buffer=down, one_way=True)  # type: ignore[arg-type]


def _parsed(path: Path) -> tuple[dict[str, int], list[dict[str, int]]]:
    header: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    for number, line in enumerate(read_text(path, "htsim topology").split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key, where = words[0].lower(), f"{path}:{number}"
        value = whole(words[1]) if len(words) == 2 else None
        if value is None or value >= 2**53:
            raise InputError(f"{where}: got '{line.strip()[:60]}', expected a key and a whole number")
        if key == "tier":
            if value != len(tiers) or value > 2:
                raise InputError(f"{where}: got tier {value}, expected tier {len(tiers)} of at most 3")
            tiers.append({})
            continue
        place, known = (tiers[-1], _KEYS) if tiers else (header, _HEADER)
        if key not in known:
            raise InputError(f"{where}: unknown key '{words[0][:60]}'{nearest(key[:60], known)}")
        if key in place:
            raise InputError(f"{where}: '{words[0]}' is there twice")
        zero = key in ("switch_latency_ns", "downlink_latency_ns", "queue_up", "queue_down")
        if not value and not zero:
            raise InputError(f"{where}: {words[0]}: got 0, expected 1 or more")
        place[key] = value
    return header, tiers


def _divided(path: Path, name: str, value: int, by: int, other: str) -> int:
    if value % by:
        raise InputError(f"{path}: {name} {value} is no multiple of {other}, {by}")
    return value // by


def _equal(path: Path, name: str, value: int, expected: int, what: str) -> None:
    if value != expected:
        raise InputError(f"{path}: {name}: got {value}, expected {expected}, the {what}")
