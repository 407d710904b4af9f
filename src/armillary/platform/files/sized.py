"""Machines of a size, made from a preset: `64xdgx-h100` counts nodes, `4xgb200-nvl72` racks, `512xh100` devices.

A preset that can grow says how under ``scale``::

    scale:
      of: node                # what N counts in Nxdgx-h100: node, rack or slice
      device: h100            # what N counts in Nxh100
      part: 8                 # a domain that is not used whole has a multiple of so many devices
      between: {name: fabric, topology: Switch, bandwidth: 50 GB/s, latency: 5 us}

A user's own file may be counted, too, as `64xmycluster.yaml`; what joins its copies stands there as ``between``, or is
its outermost dimension.

``between`` joins domains; its size follows. A domain that is a torus (``shape``) takes the shape that is nearest to a
square or a cube.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from armillary.base.errors import InputError

_COUNTED = re.compile(r"(\d{1,18})\s*x\s*(.+)")
_TURNED = re.compile(
    r"(?:(\d{1,18})\s*[x*:\s]\s*(\S{1,60}))|(?:(\S{1,60}?)\s*[x*:\s]\s*(\d{1,18}))", re.IGNORECASE
)
MOST = 2**24
"""Most devices of a machine that is counted."""


def counted(name: str) -> tuple[int, str] | None:
    """Return N and what it counts of "Nxsomething", None if `name` is no such text."""
    found = _COUNTED.fullmatch(name.strip())
    return (int(found[1]), found[2]) if found else None


def turned(name: str) -> list[str]:
    """Return "8xh100" for a text that says as much in another way, such as "h100x8" or "8*h100", else nothing."""
    found = _TURNED.fullmatch(name.strip())
    if found is None:
        return []
    return [f"{found[1] or found[4]}x{(found[2] or found[3]).strip().casefold()}"]


def sized(name: str, platform: Mapping[str, Any], scale: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """Return the platform of a preset with another number of devices.

    Args:
        name: As the user wrote it, for errors.
        platform: Of the preset, with one domain.
        scale: Of the preset.
        devices: How many there are to be.

    Raises:
        InputError: so many devices do not make up whole domains; names the nearest numbers that do.
    """
    if not 1 <= devices <= MOST:
        raise InputError(f"machine {name}: {devices:,} devices, expected 1 to {MOST:,}")
    inner = platform["network"][0]
    domain, part = devices_of(inner), int(scale["part"])
    used = _domain(devices, domain, part)
    if not used:
        low, high = _nearest(devices, domain, part)
        shares = [*_parts(domain, part)]
        alike = str(domain)
        if len(shares) > 1:
            alike = f"a number from {shares[-1]} to {domain} in steps of {part}, which each domain then has"
        raise InputError(
            f"machine {name}: {devices:,} devices, expected at most {domain}, or a multiple of {alike}; "
            f"nearest: {low:,} and {high:,}"
        )
    network = [_of_size(inner, used)]
    if devices > used:
        network.append({"size": devices // used, **scale["between"]})
    return {**platform, "network": network}


def multiplied(name: str, platform: Mapping[str, Any], between: Any, count: int) -> dict[str, Any]:
    """Return a platform of `count` machines.

    Args:
        name: As the user wrote it, for errors.
        platform: One machine, of the user's file.
        between: A dimension without its size that joins them; None: the outermost dimension grows.
        count: How many.

    Raises:
        InputError: nothing joins them, or there would be too many devices.
    """
    network = platform.get("network")
    if not isinstance(network, list) or not all(isinstance(each, Mapping) for each in network):
        raise InputError(f"machine {name}: expected a file with a list of dimensions as its network")
    inner = math.prod(_devices(name, each) for each in network)
    if not 1 <= count <= MOST // max(inner, 1):
        raise InputError(f"machine {name}: {count * inner:,} devices, expected 1 to {MOST:,}")
    if count == 1:
        return {**platform}
    if between is not None:
        if not isinstance(between, Mapping) or "size" in between:
            raise InputError(f"machine {name}: between: expected a dimension without its size")
        return {**platform, "network": [*network, {**between, "size": count}]}
    last = network[-1]
    if len(network) < 2 or "size" not in last:
        raise InputError(
            f"machine {name}: nothing joins {count:,} of them, expected in the file 'between: "
            "{name: fabric, topology: Switch, bandwidth: 50 GB/s, latency: 5 us}'"
        )
    return {**platform, "network": [*network[:-1], {**last, "size": last["size"] * count}]}


def _devices(name: str, dimension: Mapping[str, Any]) -> int:
    sides_ = dimension["shape"] if "shape" in dimension else [dimension.get("size")]
    if not isinstance(sides_, list) or not all(isinstance(each, int) and each > 0 for each in sides_):
        raise InputError(
            f"machine {name}: expected a size or a shape of dimension {dimension.get('name', '')}".rstrip()
        )
    return math.prod(sides_)


def devices_of(dimension: Mapping[str, Any]) -> int:
    """Return the NPUs of a dimension of a platform file."""
    return math.prod(dimension["shape"]) if "shape" in dimension else int(dimension["size"])


def _domain(devices: int, domain: int, part: int) -> int:
    """Return how many devices of each domain are used: all that there are, or the most that make domains alike."""
    if devices <= domain:
        return devices
    return next((used for used in _parts(domain, part) if devices % used == 0), 0)


def _parts(domain: int, part: int) -> Iterator[int]:
    # Half a domain at least: nobody spreads a job over more domains than it needs, by more than that.
    return (used for used in range(domain, domain // 2, -1) if used % part == 0 or used == domain)


def _nearest(devices: int, domain: int, part: int) -> tuple[int, int]:
    def works(number: int) -> bool:
        return _domain(number, domain, part) > 0

    low = next(number for number in range(devices, 0, -1) if works(number))
    return low, next(number for number in range(devices, devices + domain + 1) if works(number))


def _of_size(dimension: Mapping[str, Any], size: int) -> dict[str, Any]:
    if "shape" not in dimension:
        return {**dimension, "size": size}
    shape = sides(size, len(dimension["shape"]))
    if len(shape) > 1:
        return {**dimension, "shape": shape}
    # A torus of one side is a ring.
    rest = {key: value for key, value in dimension.items() if key not in ("shape", "topology")}
    return {**rest, "topology": "Ring", "size": size}


def sides(size: int, most: int) -> list[int]:
    """Return at most `most` sides above 1 whose product is `size`, as equal as they can be; one if there are none."""
    best = [size]
    for side in range(2, math.isqrt(size) + 1):
        if most > 1 and size % side == 0:
            found = sorted([side, *sides(size // side, most - 1)])
            if (max(found), sum(found)) < (max(best), sum(best)):
                best = found
    return best
