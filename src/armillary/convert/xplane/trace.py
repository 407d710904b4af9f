"""Make a trace of the devices of profiles: each is a rank, whose work waits as it did when it was recorded."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.base.errors import InputError
from armillary.base.units import format_count
from armillary.convert.converted import Converted
from armillary.convert.groups import Groups
from armillary.convert.hlo.lower import COLLECTIVES
from armillary.convert.pytorch.closing import APART, replay, statements
from armillary.convert.xplane.devices import ASYNC, Device, Work, devices_of
from armillary.convert.xplane.instructions import OPERAND, Modules, communicates
from armillary.convert.xplane.meetings import Meetings, key_of
from armillary.convert.xplane.space import Space
from armillary.trace import Graph, GraphBuilder, NodeType, Trace
from armillary.trace.graph import LIMIT
from armillary.trace.node import REPLAY_ONLY, Attribute

_NEAR = 64
"""Operations that run beside each other among which the one of a -start is looked for."""


def trace_of(paths: Sequence[Path]) -> Converted:
    """Return the trace of all devices of the files, in the order of files and of devices.

    Raises:
        InputError: a file cannot be read, or no device of it worked.
    """
    devices: list[Device] = []
    modules: list[Modules] = []
    begun: list[int] = []
    left_out: Counter[str] = Counter()
    for path in paths:
        found, known, other = devices_of(Space(path))
        devices += found
        modules += [known] * len(found)
        # Hosts have clocks of their own; the devices of one have one.
        begun += [min(device.work[0].start for device in found)] * len(found)
        left_out += other
        begin, end = begun[-1], max(each.end for device in found for each in device.work)
        if end - begin >= LIMIT:
            raise InputError(f"{path}: has events from {begin} to {end} ns, expected less than {LIMIT} ns")
    check_count(
        sum(len(each.work) for each in devices), MOST_RECORDED, "the profile: operations", "a shorter one"
    )
    unpaired = [_pair(device) for device in devices]
    meetings = Meetings([device.work for device in devices], modules)
    groups = Groups(len(devices))
    for meeting in meetings.of.values():
        for group in meeting.groups if meeting else ():
            groups.number(group)
    tags: dict[tuple[Any, int], int] = {}
    graphs, facts = [], list[dict[str, Any]]()
    for rank, device in enumerate(devices):
        graphs.append(_Rank(rank, device, begun[rank], meetings, groups, tags).graph())
        ended = max(each.end for each in device.work) - begun[rank]
        replayed = int(replay(graphs[-1]).max(initial=0))
        facts.append({"rank": rank, "device": device.name, "recorded_ns": ended, "replayed_ns": replayed})
    warnings = [
        f"{format_count(count)} communications: {what}" for what, count in sorted(meetings.warned.items())
    ]
    warnings += [f"{format_count(count)} left out: {what}" for what, count in sorted(left_out.items())]
    if lost := sum(unpaired):
        warnings.append(
            f"{format_count(lost)} operations -done have no -start: they take their recorded time"
        )
    unsized = Counter(name for (_, name), meeting in meetings.of.items() if meeting and meeting.size is None)
    if unsized:
        warnings.append(
            f"nothing says the bytes of {len(unsized)} collectives, such as '{min(unsized)[:60]}': they take their "
            "recorded time on every machine"
        )
    apart = [
        each for each in facts if abs(each["replayed_ns"] - each["recorded_ns"]) > APART * each["recorded_ns"]
    ]
    if apart:
        warnings.append(f"{len(apart)} ranks replay in more than {APART:.0%} another time than was recorded")
    return Converted(
        Trace.from_ranks(graphs),
        dict(groups.ranks),
        tuple(warnings),
        {"per_rank": facts},
        tuple(statements(facts)),
    )


def _pair(device: Device) -> int:
    """Join every -start and -done with what ran between them; return how many -done have no -start.

    Where a profile has no line for what runs beside the operations, it ran from the -start to the end of the -done.
    """
    line = device.streams.index(ASYNC) if ASYNC in device.streams else -1
    if line < 0:
        return 0
    beside = [each for each in device.work if each.stream == line]
    open_: dict[str, list[Work]] = defaultdict(list)
    taken: set[int] = set()
    added, unpaired = [], 0
    at = 0
    for each in device.work:
        if each.stream == line:
            continue
        if each.opcode.endswith("-start"):
            open_[each.opcode.removesuffix("-start")].append(each)
        if not each.opcode.endswith("-done"):
            continue
        starts = open_[each.opcode.removesuffix("-done")]
        started = _started(each, starts)
        if started is None:
            unpaired += 1
            continue
        starts.remove(started)
        while at < len(beside) and (id(beside[at]) in taken or beside[at].end < started.start):
            at += 1
        run = next((other for other in beside[at : at + _NEAR] if id(other) not in taken
                    and started.start <= other.start <= each.end and _alike(other, started)), None)  # fmt: skip
        if run is None:
            run = Work(started.name, started.start, each.end, line, started.event, started.program,
                       started.programs, started.opcode, started.instruction)  # fmt: skip
            added.append(run)
        taken.add(id(run))
        # What communicates is what ran between them.
        run.opcode, run.instruction = started.opcode, started.instruction
        run.name, run.program, run.programs = started.name, started.program, started.programs
        started.opcode = each.opcode = ""
        run.after, each.awaits = started, run
    device.work += added
    device.work.sort(key=lambda each: (each.start, each.stream, each.end))
    return unpaired


def _started(done: Work, starts: Sequence[Work]) -> Work | None:
    """Return the -start of a -done: its operand, else that of its number, else the first that is open."""
    named = done.instruction.attributes.get(OPERAND) if done.instruction else None
    wanted = (named, re.sub(r"-done(?=[.\d]*$)", "-start", done.name))
    for name in wanted:
        for each in starts:
            if name == each.name:
                return each
    return starts[0] if starts else None


def _alike(beside: Work, started: Work) -> bool:
    names = [re.sub(r"-start|-done|[.\d]+$", "", each.name) for each in (beside, started)]
    return beside.name == started.name or names[0] == names[1]


class _Rank:
    """The nodes of one rank in the making."""

    def __init__(
        self, rank: int, device: Device, begun: int, meetings: Meetings, groups: Groups,
        tags: dict[tuple[Any, int], int],
    ) -> None:  # fmt: skip
        self.rank, self.device, self.begun = rank, device, begun
        self.meetings, self.groups, self.tags = meetings, groups, tags
        self.builder = GraphBuilder(rank=rank)
        self.line = device.streams.index(ASYNC) if ASYNC in device.streams else -1
        self.seen: Counter[Any] = Counter()
        self.nodes: dict[int, list[int]] = {}
        """Nodes of a work, by its identity."""

    def graph(self) -> Graph:
        self.groups.metadata(self.builder)
        latest: dict[int, list[Work]] = defaultdict(list)
        for work in self.device.work:
            waits = list(self._waits(work, latest))
            self._add(work, waits)
            run = latest[work.stream]
            run.append(work)
            # Of those that have ended, the last is enough; the others still run.
            ended = [each for each in run if each.end <= work.start]
            if len(ended) > 1:
                last = max(ended, key=lambda each: each.end)
                latest[work.stream] = [each for each in run if each is last or each.end > work.start]
        return self.builder.graph(self.device.name)

    def _waits(self, work: Work, latest: Mapping[int, Sequence[Work]]) -> Iterator[Work]:
        """Yield what a work waited for: its own stream, its -start, and of others what its time shows."""
        if work.after is not None:
            yield work.after
            return
        if work.awaits is not None and id(work.awaits) in self.nodes:
            yield work.awaits
        before = {
            stream: max(ended, key=lambda each: each.end)
            for stream, run in latest.items()
            if (ended := [each for each in run if each.end <= work.start])
        }
        own = before.get(work.stream)
        if own is not None and work.stream != self.line:
            yield own
        for stream, other in before.items():
            # On a TPU only a -done waits for what runs beside the operations.
            if stream in (work.stream, self.line):
                continue
            # A stream that was idle until another one had ended waited for it; communication waits for all.
            if own is None or work.stream == self.line or key_of(work) or other.end > own.end:
                yield other

    def _add(self, work: Work, waits: Sequence[Work]) -> None:
        after = [node for each in waits for node in self.nodes[id(each)]]
        free = max([each.end for each in waits], default=self.begun)
        if work.start > free:
            attrs: list[Attribute] = [("is_cpu_op", "bool", True), ("gap", "bool", True)]
            after = [self._node("gap", attrs, after, work.start - free, free, work.stream)]
        length = work.end - max(work.start, free) if work.end > free else 0
        self.nodes[id(work)] = self._communicate(work, after, length) or [self._compute(work, after, length)]

    def _node(
        self, name: str, attrs: list[Attribute], after: Sequence[int], length: int, start: int, stream: int,
        kind: int = NodeType.COMP_NODE,
    ) -> int:  # fmt: skip
        made = self.builder.add(name, kind, attrs, after=after)
        node = self.builder.nodes[-1]
        node.duration_micros = (length + 500) // 1000
        node.attrs += [
            ("duration_ns", "int64", length),
            ("start_ns", "int64", start - self.begun),
            ("stream", "int64", stream),
        ]
        return made

    def _compute(self, work: Work, after: Sequence[int], length: int) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", False)]
        flops = work.event.amount("model_flops") or work.event.amount("flops")
        moved = work.event.amount("bytes_accessed")
        if flops and not communicates(work.opcode):
            attrs.append(("num_ops", "int64", flops))
        if moved and not communicates(work.opcode):
            attrs.append(("tensor_size", "uint64", moved))
        return self._node(work.name, attrs, after, length, work.start, work.stream)

    def _communicate(self, work: Work, after: Sequence[int], length: int) -> list[int]:
        """Return the nodes of a communication; none if the rank only spends its time on it."""
        key = key_of(work)
        meeting = self.meetings.of.get(key) if key else None
        if key is None or meeting is None:
            return []
        self.seen[key] += 1
        if meeting.pairs:
            tag = self.tags.setdefault((key, self.seen[key]), len(self.tags))
            return list(self._messages(work, meeting.pairs, meeting.size or 1, tag, after, length))
        group = meeting.group(self.rank)
        if len(group) < 2:
            return []
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False), ("comm_type", "int64", int(COLLECTIVES[meeting.opcode])),
            ("comm_size", "int64", meeting.size or 0),
        ]  # fmt: skip
        if number := self.groups.number(group):
            attrs.append(("pg_name", "string", str(number)))
        if meeting.size is None:
            attrs.append((REPLAY_ONLY, "bool", True))
        kind = NodeType.COMM_COLL_NODE
        return [self._node(work.name, attrs, after, length, work.start, work.stream, kind)]

    def _messages(
        self, work: Work, pairs: Sequence[tuple[int, int]], size: int, tag: int, after: Sequence[int], length: int
    ) -> Iterator[int]:  # fmt: skip
        for source, target in pairs:
            if source == target or self.rank not in (source, target):
                continue
            attrs: list[Attribute] = [
                ("is_cpu_op", "bool", False), ("comm_size", "int64", size), ("comm_src", "int32", source),
                ("comm_dst", "int32", target), ("comm_tag", "int32", tag),
            ]  # fmt: skip
            kind = NodeType.COMM_SEND_NODE if self.rank == source else NodeType.COMM_RECV_NODE
            yield self._node(work.name, attrs, after, length, work.start, work.stream, kind)
