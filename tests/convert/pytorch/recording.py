"""Makes the host trace and the device trace of one rank from a short description; times in ns.

Operators are given with start and end; what lies inside another one of the same thread is its child. Ids of nodes and
of RecordFunctions count up in the order of starts, as PyTorch gives them out.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.convert.pytorch.device import DeviceTrace, read_device
from armillary.convert.pytorch.host import HostTrace, host_of
from armillary.convert.pytorch.link import Linked, link

SCHEMAS = (
    "1.0.1",
    "1.0.2-chakra.0.0.4",
    "1.0.3-chakra.0.0.4",
    "1.0.4",
    "1.1.0-chakra.0.0.4",
    "1.1.1-chakra.0.0.4",
    "1.1.1-chakra.1.0.0",
)
_PROCESS = 1


def tensor(storage: int, elements: int, bytes_each: int = 4, device: str = "cpu") -> list[Any]:
    """Return the record of a tensor that is all of its storage."""
    return [storage, storage, 0, elements, bytes_each, device]


@dataclass(eq=False)
class Op:
    """An operator or annotation."""

    name: str
    start: int
    end: int
    tid: int = 1
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    schema: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    annotation: bool = False
    on_host: bool = True
    on_device: bool = True
    worker: tuple[int, int, int] | None = None
    """Start, end and thread of the event of a backend's thread; the node is where it was issued."""
    id: int = 0
    rf_id: int = 0
    parent: int = 0


@dataclass
class Recording:
    """What one rank did."""

    schema: str = "1.1.1-chakra.0.0.4"
    rank: int | None = None
    world: int | None = None
    groups: list[dict[str, Any]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    correlations: int = 100

    def op(self, name: str, start: int, end: int, **more: Any) -> Op:
        """Add an operator."""
        self.ops.append(Op(name, start, end, **more))
        return self.ops[-1]

    def gloo(self, name: str, issued: int, start: int, end: int, tid: int = 99, **more: Any) -> Op:
        """Add an annotation of a backend that works on a thread of its own, issued inside an operator."""
        return self.op(name, issued, issued, annotation=True, worker=(start, end, tid), **more)

    def launch(
        self,
        start: int,
        end: int,
        kernel: tuple[int, int],
        *,
        name: str = "gemm",
        stream: int = 7,
        tid: int = 1,
        call: str = "cudaLaunchKernel",
        cat: str = "kernel",
    ) -> int:
        """Add a runtime call and the kernel it launches; return their correlation."""
        correlation = self.call(call, start, end, tid)
        args = {"device": 0, "stream": stream, "correlation": correlation}
        self._event(cat, name, *kernel, stream, args, pid=0)
        return correlation

    def call(self, name: str, start: int, end: int, tid: int = 1) -> int:
        """Add a runtime call, such as one that waits; return its correlation."""
        self.correlations += 1
        self._event("cuda_runtime", name, start, end, tid, {"correlation": self.correlations})
        return self.correlations

    def stream_wait(self, stream: int, on: int, recorded: tuple[int, int], told: tuple[int, int]) -> None:
        """Add cudaEventRecord on one stream, cudaStreamWaitEvent on another, and Kineto's record of both."""
        mark = self.call("cudaEventRecord", *recorded)
        wait = self.call("cudaStreamWaitEvent", *told)
        args = {
            "stream": stream,
            "wait_on_stream": on,
            "wait_on_cuda_event_record_corr_id": mark,
            "correlation": wait,
        }
        self._event("cuda_sync", "Stream Wait Event", told[0], told[1], stream, args, pid=0)

    def host(self) -> dict[str, Any]:
        """Return the host document."""
        self._number()
        nodes = [_node(self.schema, self._structure("process", 1, 0, 0))]
        for at, tid in enumerate(self._threads()):
            nodes.append(_node(self.schema, self._structure("thread", 2 + at, 1, tid)))
        if self.groups:
            said = (json.dumps(self.groups),)
            made = Op(
                "## process_group:init ##", 0, 0, min(self._threads(), default=1), said, id=900, parent=2
            )
            nodes.append(_node(self.schema, made))
        # PyTorch writes a node when it ends, so children stand before their parents.
        ended = sorted((op for op in self.ops if op.on_host), key=lambda op: (op.end, -op.start, -op.id))
        nodes += [_node(self.schema, op) for op in ended]
        return {
            "schema": self.schema,
            "pid": 4711,
            "time": "2026-01-01 00:00:00",
            "start_ts": 1,
            "nodes": nodes,
        }

    def device(
        self, *, rf_ids: bool = True, external: str = "own", base: int = 4_000_000_000_000
    ) -> dict[str, Any]:
        """Return Kineto's document.

        Args:
            rf_ids: with "Record function id", as since 2023.
            external: what "External id" is: "own" numbers, or "rf", the id of the RecordFunction.
            base: the time 0, ns.
        """
        self._number()
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "args": {}}
        ]
        seen = [op for op in self.ops if op.on_device]
        for at, op in enumerate(sorted(seen, key=lambda op: (op.worker or (op.start,))[0])):
            start, end, tid = op.worker or (op.start, op.end, op.tid)
            args: dict[str, Any] = {"External id": op.rf_id if external == "rf" else at + 5000}
            if rf_ids:
                args["Record function id"] = op.rf_id
            events.append(
                _complete("user_annotation" if op.annotation else "cpu_op", op.name, start, end, tid, args)
            )
        events += self.events
        for event in events:
            if "ts" in event:
                event["ts"] = (event["ns"] + base) / 1000
        document: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events}
        if self.rank is not None:
            document["distributedInfo"] = {"backend": "gloo", "rank": self.rank, "world_size": self.world}
        return document

    def linked(self, **device: Any) -> Linked:
        """Return both, joined."""
        return link(self.host_trace(), self.device_trace(**device))

    def host_trace(self) -> HostTrace:
        """Return the host trace as it is read."""
        document = json.loads(json.dumps(self.host()))
        return host_of(
            {k: v for k, v in document.items() if k != "nodes"},
            document["nodes"],
            f"host_{self.rank or 0}.json",
        )

    def device_trace(self, **device: Any) -> DeviceTrace:
        """Return the device trace as it is read."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "device.json"
            path.write_text(json.dumps(self.device(**device)))
            return read_device(path)

    def write(self, folder: Path, rank: int = 0, *, zipped: bool = False) -> tuple[Path, Path]:
        """Write ``host_<rank>.json`` and ``device_<rank>.json``."""
        paths = []
        for side, document in (("host", self.host()), ("device", self.device())):
            path = folder / f"{side}_{rank}.json{'.gz' if zipped else ''}"
            data = json.dumps(document, indent=1).encode()
            path.write_bytes(gzip.compress(data) if zipped else data)
            paths.append(path)
        return paths[0], paths[1]

    def _event(
        self, cat: str, name: str, start: int, end: int, tid: int, args: dict[str, Any], pid: int = 4711
    ) -> None:
        self.events.append(_complete(cat, name, start, end, tid, args, pid))

    def _threads(self) -> list[int]:
        return sorted({op.tid for op in self.ops if op.on_host})

    def _structure(self, what: str, ident: int, parent: int, tid: int) -> Op:
        return Op(f"[pytorch|profiler|execution_trace|{what}]", 0, 0, tid, id=ident, parent=parent)

    def _number(self) -> None:
        order = sorted(self.ops, key=lambda op: (op.start, -op.end))
        threads = {tid: 2 + at for at, tid in enumerate(self._threads())}
        around: dict[int, list[Op]] = {}
        for at, op in enumerate(order):
            op.id, op.rf_id = 1000 + 3 * at, 1 + at
            stack = around.setdefault(op.tid, [])
            while stack and (stack[-1].end < op.end or stack[-1].end <= op.start < op.end):
                stack.pop()
            hosts = [outer for outer in stack if outer.on_host]
            op.parent = hosts[-1].id if hosts else threads.get(op.tid, _PROCESS)
            stack.append(op)


def _complete(
    cat: str, name: str, start: int, end: int, tid: int, args: dict[str, Any], pid: int = 4711
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": 0,
        "dur": (end - start) / 1000,
    }
    return {**event, "ns": start, "args": args}


def _node(schema: str, op: Op) -> dict[str, Any]:
    attrs = {
        "rf_id": op.rf_id,
        "fw_parent": 0,
        "seq_id": 0,
        "scope": 0,
        "tid": op.tid,
        "fw_tid": 0,
        "op_schema": op.schema,
    }
    node: dict[str, Any] = {"id": op.id, "name": op.name}
    if schema.startswith("1.0.1"):
        node |= attrs | {"parent": op.parent}
        for side, values in (("input", op.inputs), ("output", op.outputs)):
            node[f"{side}s"] = list(values)
            node[f"{side}_shapes"] = [_shape(value) for value in values]
            node[f"{side}_types"] = [_type(value) for value in values]
        return node
    node["ctrl_deps"] = op.parent
    for side, values in (("inputs", op.inputs), ("outputs", op.outputs)):
        node[side] = {
            "values": list(values),
            "shapes": [_shape(value) for value in values],
            "types": [_type(value) for value in values],
        }
        if schema.startswith("1.1.1"):
            node[side]["strides"] = [_stride(value) for value in values]
    node["attrs"] = [
        {"name": name, "type": "string" if isinstance(value, str) else "uint64", "value": value}
        for name, value in (attrs | op.extra).items()
    ]
    return node


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)


def _shape(value: Any) -> Any:
    if _is_tensor(value):
        return [value[3]]
    return (
        [_shape(item) for item in value]
        if isinstance(value, list) and value and isinstance(value[0], list)
        else []
    )


def _stride(value: Any) -> Any:
    if _is_tensor(value):
        return [1]
    return (
        [_stride(item) for item in value]
        if isinstance(value, list) and value and isinstance(value[0], list)
        else []
    )


def _type(value: Any) -> str:
    if _is_tensor(value):
        return "Tensor(float)" if value[4] == 4 else "Tensor(long int)"
    if isinstance(value, list):
        return f"GenericList[{','.join(_type(item) for item in value)}]"
    if isinstance(value, str):
        return "Object" if value == "<Object>" else "None" if value == "<None>" else "String"
    return "Bool" if isinstance(value, bool) else "Int" if isinstance(value, int) else "Double"
