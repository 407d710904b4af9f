"""The joined traces of ``chakra_trace_link``: host nodes with times, and copies of them that stand for kernels."""

from __future__ import annotations

from typing import Any

from armillary.base.errors import InputError
from armillary.convert.pytorch.device import CpuOp, DeviceOp, DeviceTrace, RuntimeCall, nanoseconds
from armillary.convert.pytorch.host import host_of
from armillary.convert.pytorch.link import Linked


def is_et_plus(raw: list[dict[str, Any]]) -> bool:
    """Whether nodes carry the times that ``chakra_trace_link`` adds."""
    return any("inclusive_dur" in record for record in raw)


def read_et_plus(header: dict[str, Any], raw: list[dict[str, Any]], source: str) -> Linked:
    """Return the joined trace of a decoded document.

    It does not say when a kernel was launched: that is taken to be when its operator ended, or the kernel began.

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
        for number, record in enumerate((record for record in raw if "cat" in record), 1):
            start, end = _times(record)
            tid, launched = ends.get(record["ctrl_deps"], (0, start))
            launched = min(launched, start)
            device.calls.append(RuntimeCall("launch", launched, launched, tid, number, 0))
            stream = int(record.get("stream", 0))
            device.kernels.append(DeviceOp(str(record["name"]), start, end, 0, stream, number, 0, {}))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source}: node {record.get('id')} ('{record.get('name')}'): {error!r}") from error
    order = sorted(range(len(device.ops)), key=lambda at: (device.ops[at].start, -device.ops[at].end, at))
    place = {old: new for new, old in enumerate(order)}
    device.ops = [device.ops[at] for at in order]
    op_of = [place[at] if at >= 0 else -1 for at in op_of]
    return Linked(host, device, op_of, {"chakra_trace_link": len(device.ops)}, [])


def _times(record: dict[str, Any]) -> tuple[int, int]:
    start = nanoseconds(record["ts"], "ts")
    return start, start + max(nanoseconds(record.get("inclusive_dur") or 0, "inclusive_dur"), 0)
