"""A device trace without a host trace: its CPU events replace the missing host nodes.

Kineto's record of arguments (``record_shapes``) is enough for sizes and FLOPs. It does not identify tensors, so there
are no dependencies by data.
"""

from __future__ import annotations

from math import prod
from typing import Any

from armillary.base.json_text import json_within
from armillary.convert.pytorch.arguments import element_bytes
from armillary.convert.pytorch.device import CpuOp, DeviceTrace
from armillary.convert.pytorch.host import HostNode, HostTrace
from armillary.convert.pytorch.link import Linked

DEVICE_ONLY = "none"
"""The schema of a host trace made up from device events."""

_SAID = {
    "Collective name": "collective_name",
    "In msg nelems": "in_msg_nelems",
    "Out msg nelems": "out_msg_nelems",
    "dtype": "dtype",
    "Group size": "pg_size",
    "Process Group Name": "pg_name",
    "Process Group Description": "pg_desc",
    "Global rank start": "global_rank_start",
    "Global rank stride": "global_rank_stride",
    "In split size": "in_split_size",
    "Src Rank": "src_rank",
    "Dst Rank": "dst_rank",
}
"""Kineto's names of the attributes of ``record_param_comms``, and the host trace's."""


def without_host(device: DeviceTrace) -> Linked:
    """Return the joined trace in which every CPU event is its own host node."""
    nodes: list[HostNode] = []
    around: dict[int, list[tuple[int, int]]] = {}
    # Every tensor gets a storage of its own, so no two operators seem to share data.
    storages = iter(range(1, 1 << 62))
    for at, op in enumerate(device.ops):
        stack = around.setdefault(op.tid, [])
        # Kineto's CPU events come parents first; what has not ended on the thread is around this one.
        while stack and stack[-1][1] <= op.start:
            stack.pop()
        parent = stack[-1][0] if stack else 0
        stack.append((at + 1, op.end))
        values, shapes, types = _arguments(op, storages)
        # Ids count from 1: 0 is the parent of the outermost.
        nodes.append(
            HostNode(
                at + 1,
                op.name,
                parent,
                op.rf_id,
                op.tid,
                0,
                "",
                values,
                shapes,
                types,
                [],
                [],
                [],
                said(op.args),
            )
        )
    host = HostTrace(device.source, DEVICE_ONLY, nodes, [], {})
    return Linked(
        host, device, list(range(len(nodes))), {"device": len(nodes)}, ["no host trace: no data dependencies"]
    )


def said(args: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a collective among the arguments of an event, under the names of host traces."""
    found = {ours: args[theirs] for theirs, ours in _SAID.items() if theirs in args}
    ranks = args.get("Process Group Ranks")
    if isinstance(ranks, str):
        try:
            ranks = json_within(ranks)
        except ValueError:  # long lists are cut short
            ranks = None
    if isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks):
        found["ranks"] = ranks
    return found


def _arguments(op: CpuOp, storages: Any) -> tuple[list[Any], list[Any], list[Any]]:
    dims, kinds = op.args.get("Input Dims"), op.args.get("Input type")
    concrete = op.args.get("Concrete Inputs")
    if not isinstance(dims, list) or not isinstance(kinds, list):
        return [], [], []
    values: list[Any] = []
    types: list[Any] = []
    for at, (shape, kind) in enumerate(zip(dims, kinds, strict=False)):
        # Scalars stand in a list of their own, as text, with an empty string for every tensor.
        given = concrete[at] if isinstance(concrete, list) and at < len(concrete) else ""
        value, name = _argument(shape, str(kind), given, storages)
        values.append(value)
        types.append(name)
    return values, dims, types


def _argument(shape: Any, kind: str, given: Any, storages: Any) -> tuple[Any, str]:
    # A list of tensors: one shape each, and one element type for all.
    if isinstance(shape, list) and shape and all(isinstance(part, list) for part in shape):
        inner = [
            _argument(part, kind.removeprefix("GenericList[").split(",")[0], "", storages) for part in shape
        ]
        return [value for value, _ in inner], f"GenericList[{','.join(name for _, name in inner)}]"
    size = element_bytes(kind)
    if size and isinstance(shape, list) and all(type(part) is int and part >= 0 for part in shape):
        storage = next(storages)
        return [storage, storage, 0, prod(shape), size, "unknown"], f"Tensor({kind})"
    if isinstance(given, str) and given:
        try:
            # ``True``, ``[1, 1]`` and ``0.5`` are JSON once in lower case; other text is a string.
            return json_within(given.lower()), "Int"
        except ValueError:
            return given, "String"
    return "<None>", "None"
