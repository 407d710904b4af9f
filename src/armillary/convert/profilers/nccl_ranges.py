"""What NVTX ranges say of NCCL's calls: their bytes, and who is in a communicator.

NCCL's own ranges are called as its functions (``ncclAllReduce``) and have a payload, which the export writes as JSON:
"Message size [bytes]", "NCCL communicator ID". ATLAHS' NCCL writes texts instead: ``ncclAllReduce(): commHash H, stream
S, data_size B, …``, ``commHash H commId I rank r nranks n pid p``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from armillary.base.json_text import json_within

_CALL = re.compile(r"nccl(\w+?)(?:\(\))?\b")
_FIELD = re.compile(r"(\w+)\s*[:=]?\s+(-?\w+)")
_OF_JSON = (
    ("bytes", re.compile(r"message size|data.?size|bytes", re.IGNORECASE)),
    ("comm", re.compile(r"comm", re.IGNORECASE)),
    ("ranks", re.compile(r"(no|num|number)\W*(of)?\W*ranks|nranks", re.IGNORECASE)),
    ("peer", re.compile(r"peer|(receiver|sender)_rank", re.IGNORECASE)),
    ("rank", re.compile(r"^rank$", re.IGNORECASE)),
)
"""What a value is by its key; the first that matches."""
_TEXTS = {
    "data_size": "bytes", "commHash": "comm", "nranks": "ranks", "rank": "rank", "receiver_rank": "peer",
    "sender_rank": "peer",
}  # fmt: skip
_MOST = 2**40


@dataclass(frozen=True)
class NcclCall:
    """What one range says.

    Attributes:
        name: Of the function without ``nccl``, in lower case; "" of a range that describes a communicator.
        comm: The communicator, if it is named.
        values: bytes, ranks, rank, peer, as far as they are given.
    """

    name: str
    comm: str = ""
    values: dict[str, int] = field(default_factory=dict)

    @property
    def args(self) -> dict[str, Any]:
        """The same as Kineto writes it beside a kernel; bytes are elements of one byte."""
        found: dict[str, Any] = {"Collective name": self.name}
        if (size := self.values.get("bytes")) is not None:
            # NCCL counts what a rank gets of a reduce-scatter, and else what it gives.
            found |= {
                "Out msg nelems" if self.name == "reducescatter" else "In msg nelems": size,
                "dtype": "Byte",
            }
        if self.comm:
            found["Process Group Name"] = self.comm
        return found


def nccl_call(text: str, payload: str) -> NcclCall | None:
    """Return what a range says of NCCL, by its text and its payload; None if nothing."""
    match = _CALL.match(text)
    if not match and not text.startswith("commHash "):
        return None
    found: dict[str, Any] = {}
    for key, value in _FIELD.findall(text.partition(":")[2] if match else text):
        if key in _TEXTS:
            found.setdefault(_TEXTS[key], value)
    for key, value in _of_payload(payload):
        name = next((name for name, pattern in _OF_JSON if pattern.search(key)), "")
        found.setdefault(name, value)
    values = {
        name: number
        for name in ("bytes", "ranks", "rank", "peer")
        if (number := _whole(found.get(name))) is not None
    }
    return NcclCall(match[1].lower() if match else "", str(found.get("comm", ""))[:80], values)


def _of_payload(payload: str) -> Iterator[tuple[str, Any]]:
    if not payload:
        return
    try:
        waiting = [json_within(payload)]
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key, each in value.items():
                if isinstance(each, dict | list):
                    waiting.append(each)
                else:
                    yield str(key), each


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    return value if type(value) is int and 0 <= value < _MOST else None
