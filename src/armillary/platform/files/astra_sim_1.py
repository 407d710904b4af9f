"""Network and system files of ASTRA-sim 1.0, which tutorials still use.

A network file of that version is JSON with ``topologies-per-dim``; a system file is lines ``key: value`` with
algorithms joined by ``_``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.base.document import Document, Source, read_document, read_text
from armillary.base.errors import InputError
from armillary.platform.limits import placed
from armillary.platform.network import Dimension, Port

TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
COLUMNS = ("units-count", "links-count", "link-bandwidth", "link-latency")
"""Keys with a value per dimension that flags override."""
_DELAYS = {
    "nic-latency": 0.0,
    "router-latency": 0.0,
    "hbm-latency": 0.0,
    "hbm-bandwidth": 1.0,
    "hbm-scale": 0.0,
}
_KEYS = (
    "topology-name", "dimensions-count", "topologies-per-dim", "dimension-type", *COLUMNS, *_DELAYS, "use-fast-version",
)  # fmt: skip
# Keys of system files that version 2 has no more, none of which changes a tick.
_GONE = ("seprate-log", "separate-log", "boost-mode")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


def is_network(document: Document) -> bool:
    """Return whether a network file is of version 1.0."""
    return "topologies-per-dim" in document.data and "topology" not in document.data


def read_dimensions_1(
    document: Document, overrides: Mapping[str, list[float]], warnings: list[str]
) -> tuple[Dimension, ...]:
    """Return the dimensions of a network file of version 1.0.

    A message has all links of its dimension (in a ring of an odd number, one less), and the delays of two NICs.
    Bandwidths are GB/s of 10⁹ bytes, those of version 2 are of 2³⁰.

    Args:
        document: The file.
        overrides: Key of `COLUMNS` -> values that a flag gives instead of the file's.
        warnings: Receives what has no counterpart.

    Raises:
        InputError: A key is unknown or missing, or a value out of range.
    """
    document.check_keys(_KEYS)
    kinds = document.require("topologies-per-dim", "one topology per dimension")
    if not isinstance(kinds, list) or not kinds:
        document.reject(("topologies-per-dim",), kinds, "a list with one topology per dimension")
    count = document.whole(("dimensions-count",), document.data.get("dimensions-count", len(kinds)), 1)
    if count != len(kinds):
        document.reject(("dimensions-count",), count, f"{len(kinds)}, the length of topologies-per-dim")
    columns = {key: _column(document, key, count, overrides) for key in COLUMNS}
    delays = {
        key: _column(document, key, count, {}) if key in document.data else [default] * count
        for key, default in _DELAYS.items()
    }
    if any(delays["hbm-scale"]):
        warnings.append(f"{document.name}: hbm-scale has no effect: messages do not wait for memory")
    return tuple(_dimension(document, d, columns, delays, warnings) for d in range(count))


def _dimension(
    document: Document,
    d: int,
    columns: Mapping[str, list[Any]],
    delays: Mapping[str, list[Any]],
    warnings: list[str],
) -> Dimension:
    kind = document.choice(("topologies-per-dim", d), document.data["topologies-per-dim"][d], TOPOLOGIES)
    size = document.whole(("units-count", d), columns["units-count"][d], 2)
    links = document.whole(("links-count", d), columns["links-count"][d], 1)
    used = {"Ring": links - links % 2, "FullyConnected": links // (size - 1), "Switch": links}[kind]
    if not used:
        expected = "2 or more" if kind == "Ring" else f"{size - 1} or more, a link to each other NPU"
        document.reject(("links-count", d), links, expected)
    rate = document.number(
        ("link-bandwidth", d), columns["link-bandwidth"][d], "GB/s above 0", low=0.0, exclusive=True
    )
    latency, nic, router = (
        document.number((key, d), table[key][d], "a number of ns, 0 or more", low=0.0)
        for key, table in (("link-latency", columns), ("nic-latency", delays), ("router-latency", delays))
    )
    # A message passes two NICs, and in a switch the router; a hop here is half of a switch's way.
    hop = latency + nic + router / 2 if kind == "Switch" else latency + 2 * nic
    if nic and kind == "Ring" and size > 3:
        warnings.append(
            f"{document.name}: nic-latency counts for every hop of dimension {d}, there for every message: the same "
            "where messages go to neighbours, as in ring"
        )
    # What an NPU sends in all follows from all links, which profile physical shares.
    with placed(document, (), {"bandwidth": ("link-bandwidth", d), "size": ("units-count", d)}):
        return Dimension(f"dim{d}", kind, size, rate * used, hop, Port(rate * links, rate * links))


def _column(document: Document, key: str, count: int, overrides: Mapping[str, list[float]]) -> list[Any]:
    if key in overrides:
        found: Any = overrides[key]
        if len(found) != count:
            raise InputError(
                f"command line: --{key}: got {len(found)} values, expected {count}, one per dimension"
            )
        return list(found)
    found = document.require(key, "one value per network dimension")
    if not isinstance(found, list) or len(found) != count:
        document.reject((key,), found, f"a list of {count}, one value per dimension")
    return found


def read_system(source: Source) -> Document:
    """Return a system file of either version; one of 1.0 (``key: value`` lines, ``.txt``) with version 2's values.

    Raises:
        InputError: The file is missing or malformed.
    """
    if isinstance(source, Mapping) or not str(source).endswith(".txt"):
        return read_document(source, "system configuration", "json")
    path = Path(source)
    data: dict[str, Any] = {}
    lines = []
    for number, line in enumerate(read_text(path, "system configuration").split("\n"), 1):
        key, colon, rest = (part.strip() for part in line.partition(":"))
        if not key and not colon:
            lines.append("")
            continue
        if not colon or not key or len(rest.split()) != 1:
            raise InputError(f"{path}:{number}: got '{line.strip()[:60]}', expected a line 'key: value'")
        if key in data:
            raise InputError(f"{path}:{number}: {key} is given twice")
        value: Any = rest
        if key.endswith("-implementation"):
            value = rest.split("_")
        elif _NUMBER.fullmatch(rest):
            value = float(rest)
            value = int(value) if math.isfinite(value) and value == int(value) else value
        if key not in _GONE:
            data[key] = value
        # The same lines in a syntax whose places are known, so that errors name them. Keys of YAML have an end.
        lines.append(f"{json.dumps(key)}: {json.dumps(value)}," if key not in _GONE else "")
    return Document(str(path), data, path, "{" + "\n".join(lines) + "}", "json")
