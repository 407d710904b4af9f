"""What ran on each device of a profile: the streams of its plane, and the innermost events on them.

A TPU has a plane with a line of operations, one of those that run beside them (DMA, collectives), and one of modules; a
GPU one with a line for each stream. XLA's CPU devices are threads of the host's plane, whose events say the device.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.convert.hlo.module import Instruction
from armillary.convert.pytorch.communication_kernels import UNSAID, kernel_kind
from armillary.convert.xplane.instructions import METADATA, Modules, communicates, of_text
from armillary.convert.xplane.space import Event, Plane, Space

HOST = "/host:CPU"
OPS, ASYNC, MODULES = "XLA Ops", "Async XLA Ops", "XLA Modules"
_DEVICE = re.compile(r"/device:(TPU|GPU):(\d{1,9})")
_STREAM = re.compile(r"Stream #")
_OPCODES = {
    "ALL_REDUCE": "all-reduce", "ALL_GATHER": "all-gather", "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all", "BROADCAST": "collective-broadcast", UNSAID: "collective-permute",
}  # fmt: skip
"""Opcode by what the name of a GPU's kernel says; messages are permutes, as XLA has no others between devices."""


@dataclass(eq=False)
class Work:
    """One operation on a stream of a device; times in ns."""

    name: str
    start: int
    end: int
    stream: int
    event: Event
    program: str
    """Name of its module, without a number: processes number their own."""
    programs: tuple[str, ...]
    opcode: str
    instruction: Instruction | None
    """What its module says of it."""
    after: Work | None = None
    """Of what runs beside the operations: the -start."""
    awaits: Work | None = None
    """Of a -done: what ran beside them."""


@dataclass
class Device:
    """One device, as a rank will be: its work in order of start."""

    name: str
    ordinal: int
    work: list[Work] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)


def devices_of(space: Space) -> tuple[list[Device], Modules, Counter[str]]:
    """Return the devices that worked, in order of their numbers, the modules, and what was left out.

    Raises:
        InputError: none worked, or an event is damaged.
    """
    modules, left_out = Modules(), Counter[str]()
    for plane in space.planes:
        if plane.name == METADATA:
            modules.read(plane)
    found: list[Device] = []
    for plane in space.planes:
        if match := _DEVICE.fullmatch(plane.name):
            device = Device(plane.name, int(match[2]))
            read = _Reader(modules, left_out)
            (read.tpu if match[1] == "TPU" else read.gpu)(plane, device)
            found += [device] if device.work else []
        elif plane.name.startswith("/device:"):
            left_out[f"planes of other devices ({plane.name[:40]})"] += 1
    if not found:
        hosts = [plane for plane in space.planes if plane.name == HOST]
        found = [device for plane in hosts for device in _Reader(modules, left_out).cpu(plane)]
    if not found:
        names = ", ".join(show(plane.name) for plane in space.planes[:8])
        raise InputError(
            f"{space.path}: no device has operations of XLA; it has the planes {names}, expected /device:TPU:N, "
            f"/device:GPU:N, or {HOST} with operations (jax.profiler.trace around steps that ran)"
        )
    return sorted(found, key=lambda device: device.ordinal), modules, left_out


class _Reader:
    def __init__(self, modules: Modules, left_out: Counter[str]) -> None:
        self.modules, self.left_out = modules, left_out

    def tpu(self, plane: Plane, device: Device) -> None:
        lines: dict[str, list[Event]] = defaultdict(list)
        for name, part in plane.lines():
            lines[name] += plane.events(part) if name in (OPS, ASYNC, MODULES) else []
        ran = sorted(lines[MODULES], key=lambda event: event.start)
        starts = [event.start for event in ran]

        def module(event: Event) -> str:
            at = bisect_right(starts, event.start) - 1
            return ran[at].name if at >= 0 and event.start < ran[at].end else ""

        device.streams = [OPS, ASYNC]
        for stream, name in enumerate(device.streams):
            work = [self._work(event, stream, module(event)) for event in lines[name]]
            # Those beside the operations overlap each other, and hold none.
            device.work += work if stream else self._inner(work)
        device.work.sort(key=lambda each: (each.start, each.stream, each.end))

    def gpu(self, plane: Plane, device: Device) -> None:
        for name, part in plane.lines():
            if _STREAM.match(name):
                stream = len(device.streams)
                device.streams.append(name)
                work = [self._work(event, stream, "") for event in plane.events(part)]
                for each in work:
                    self._kernel(each)
                device.work += work
        device.work.sort(key=lambda each: (each.start, each.stream, each.end))

    def _kernel(self, work: Work) -> None:
        """Let a kernel communicate by its own name: of one instruction, others copy and reduce."""
        kind = kernel_kind(work.event.name)
        if kind is None:
            work.opcode = ""
        elif not communicates(work.opcode):
            work.opcode = _OPCODES.get(kind, "")
        else:
            # The kernel is the whole of it: XLA's starts and dones are calls of the host.
            work.opcode = re.sub("-(start|done)$", "", work.opcode)

    def cpu(self, plane: Plane) -> list[Device]:
        found: dict[int, Device] = {}
        for name, part in plane.lines():
            for event in plane.events(part):
                if "hlo_op" not in event.stats or "device_ordinal" not in event.stats:
                    continue
                number = event.amount("device_ordinal")
                device = found.setdefault(number, Device(f"{HOST}, device {number}", number))
                if not device.streams or device.streams[-1] != name:
                    device.streams.append(name)
                device.work.append(self._work(event, len(device.streams) - 1, ""))
        for device in found.values():
            streams: dict[int, list[Work]] = defaultdict(list)
            for each in device.work:
                streams[each.stream].append(each)
            device.work = [each for run in streams.values() for each in self._inner(run)]
            device.work.sort(key=lambda each: (each.start, each.stream, each.end))
        return list(found.values())

    def _work(self, event: Event, stream: int, module: str) -> Work:
        given = (event.text("program_id"), event.text("hlo_module"), module)
        programs = tuple(dict.fromkeys(each for each in given if each))
        name = event.text("hlo_op") or event.name
        found = self.modules.find(programs, name)
        if found is None and (found := of_text(event.text("long_name"))):
            name = found.name
        program = (event.text("hlo_module") or module).partition("(")[0]
        opcode = found.opcode if found else _opcode(event.text("hlo_category"), name)
        return Work(name, event.start, event.end, stream, event, program, programs, opcode, found)

    def _inner(self, work: Sequence[Work]) -> Iterator[Work]:
        """Yield the work that holds no other: a loop's time is that of what it runs. Communication is whole."""
        stack: list[tuple[Work, list[Work]]] = []
        ordered = sorted(work, key=lambda each: (each.start, -each.end))
        for each in [*ordered, None]:
            while stack and (each is None or stack[-1][0].end <= each.start):
                closed, held = stack.pop()
                # What it holds stands for it.
                inside = held if held and not communicates(closed.opcode) else [closed]
                if stack:
                    stack[-1][1].extend(inside)
                else:
                    yield from inside
            if each is not None:
                stack.append((each, []))


def _opcode(category: str, name: str) -> str:
    """Return what an operation is by its category (``all-reduce``) or its name (``all-reduce-start.7``)."""
    bare = re.sub(r"[.\d]+$", "", name)
    return next(
        (each for each in (bare, category) if communicates(each) or each.endswith(("-start", "-done"))), ""
    )
