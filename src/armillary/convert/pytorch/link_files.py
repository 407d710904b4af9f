"""The file that holds a host trace and a device trace joined: what ``armillary trace link`` writes.

It is the host trace with additional members: ``device``, the events of Kineto as rows; ``op_of``, the row of its event
or -1 for every node in the order of ids; and ``strategies``, how many nodes each strategy linked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.garbage import uncollected
from armillary.convert.pytorch.device import (
    CpuOp,
    DeviceOp,
    DeviceTrace,
    RuntimeCall,
    StreamWait,
    nanoseconds,
    read_device,
)
from armillary.convert.pytorch.device_only import without_host
from armillary.convert.pytorch.host import HostTrace, host_of, read_host
from armillary.convert.pytorch.link import Linked, link
from armillary.convert.pytorch.records import Records, read_text

_ROWS: dict[str, Any] = {"ops": CpuOp, "calls": RuntimeCall, "kernels": DeviceOp, "waits": StreamWait}


@uncollected()
def link_files(host: Path, device: Path, output: Path) -> dict[str, Any]:
    """Join two files, write the joined one, and return the report; see `link.link`."""
    linked = link(read_host(host), read_device(device))
    write_linked(output, linked)
    return linked.report()


def write_linked(path: Path, linked: Linked) -> None:
    """Write a joined trace."""
    device = linked.device
    rows = {
        # The host node has the operator's arguments already.
        name: [
            [{} if name == "ops" and key == "args" else getattr(row, key) for key in kind.__slots__]
            for row in getattr(device, name)
        ]
        for name, kind in _ROWS.items()
    }
    document = {
        **linked.host.header,
        "device": {
            "source": device.source,
            "distributed": device.distributed,
            "events": device.events,
            **rows,
        },
        "op_of": linked.op_of,
        "strategies": linked.strategies,
        "nodes": linked.host.raw,
    }
    with replacing(path) as temporary, temporary.open("w") as stream:
        json.dump(document, stream, separators=(",", ":"))


@uncollected()
def read_linked(path: Path) -> Linked:
    """Read a joined trace, also that of ``chakra_trace_link``; or a host or device trace alone, without the other.

    Raises:
        InputError: none of them.
    """
    text = read_text(path)
    # A bare list is an old device trace; the other kinds are objects.
    if '"traceEvents"' in text or text.lstrip()[:1] == "[":
        return without_host(read_device(path, text))
    raw: list[dict[str, Any]] = []
    header = Records(path, "nodes", text).read(raw.append)
    source = str(path)
    if is_et_plus(raw):
        return read_et_plus(header, raw, source)
    if "device" not in header:
        host = host_of(header, raw, source)
        return Linked(host, DeviceTrace(source), [-1] * len(host.nodes), {}, ["no device trace: no times"])
    # Popped, as the rest of the header is the host trace's own and is written back as it was.
    device, op_of = _device(header.pop("device"), source), header.pop("op_of", None)
    strategies = header.pop("strategies", {})
    host = host_of(header, raw, source)
    _check(op_of, strategies, host, device)
    return Linked(host, device, op_of, strategies, [])


def _device(table: Any, source: str) -> DeviceTrace:
    try:
        trace = DeviceTrace(str(table["source"]), distributed=table["distributed"], events=table["events"])
        for name, kind in _ROWS.items():
            setattr(trace, name, [_row(kind, row) for row in table[name]])
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{source}: the member 'device' cannot be read ({error}); expected what `armillary trace link` writes"
        ) from error
    if not isinstance(trace.distributed, dict):
        raise InputError(f"{source}: device.distributed is {trace.distributed!r}, expected an object")
    return trace


def _row(kind: Any, row: Any) -> Any:
    made = kind(*row)
    for key in kind.__slots__:
        value = getattr(made, key)
        # The rows come from a file that anybody may have edited; the conversion relies on 63-bit integers.
        wanted: type = {"name": str, "kind": str, "args": dict, "is_annotation": bool}.get(key, int)
        if not isinstance(value, wanted) or (isinstance(value, int) and not -(2**62) < value < 2**62):
            raise TypeError(f"{key} is {value!r}, expected {wanted.__name__}")
    return made


def _check(op_of: Any, strategies: Any, host: HostTrace, device: DeviceTrace) -> None:
    good = isinstance(op_of, list) and len(op_of) == len(host.nodes) and isinstance(strategies, dict)
    good = good and all(type(count) is int and 0 <= count <= len(op_of) for count in strategies.values())
    if not good or not all(type(at) is int and -1 <= at < len(device.ops) for at in op_of):
        raise InputError(
            f"{host.source}: the member 'op_of' does not fit {len(host.nodes)} nodes and {len(device.ops)} events; "
            "expected what `armillary trace link` writes"
        )


def is_et_plus(raw: list[dict[str, Any]]) -> bool:
    """Whether nodes carry the durations that ``chakra_trace_link`` adds."""
    return any("inclusive_dur" in record for record in raw)


def read_et_plus(header: dict[str, Any], raw: list[dict[str, Any]], source: str) -> Linked:
    """Return the joined trace of a decoded document.

    It does not record launch times: a kernel is taken to be launched when its operator ended, or when it began itself,
    whichever is earlier.

    Raises:
        InputError: a malformed node.
    """
    host = host_of(header, [record for record in raw if "cat" not in record], source)
    device = DeviceTrace(source)
    op_of = [-1] * len(host.nodes)
    ends: dict[int, tuple[int, int]] = {}
    try:
        for at, (node, record) in enumerate(zip(host.nodes, host.raw, strict=True)):
            if record.get("ts") is None or node.is_structure:
                continue
            start, end = _times(record)
            ends[node.id] = (node.tid, end)
            op_of[at] = len(device.ops)
            device.ops.append(CpuOp(node.name, start, end, node.tid, node.rf_id, 0, {}, False))
        # Device activities carry a category. Each gets a launch of no duration, under a correlation of its own.
        for number, record in enumerate((record for record in raw if "cat" in record), 1):
            start, end = _times(record)
            tid, launched = ends.get(record["ctrl_deps"], (0, start))
            launched = min(launched, start)
            device.calls.append(RuntimeCall("launch", launched, launched, tid, number, 0))
            stream = int(record.get("stream", 0))
            device.kernels.append(DeviceOp(str(record["name"]), start, end, 0, stream, number, 0, {}))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source}: node {record.get('id')} ('{record.get('name')}'): {error!r}") from error
    # `DeviceTrace` wants parents before children; equal times keep the order of the file.
    order = sorted(range(len(device.ops)), key=lambda at: (device.ops[at].start, -device.ops[at].end, at))
    place = {old: new for new, old in enumerate(order)}
    device.ops = [device.ops[at] for at in order]
    op_of = [place[at] if at >= 0 else -1 for at in op_of]
    return Linked(host, device, op_of, {"chakra_trace_link": len(device.ops)}, [])


def _times(record: dict[str, Any]) -> tuple[int, int]:
    start = nanoseconds(record["ts"], "ts")
    return start, start + max(nanoseconds(record.get("inclusive_dur") or 0, "inclusive_dur"), 0)
