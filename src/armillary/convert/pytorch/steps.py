"""What happened on one rank as steps that wait for each other: CPU threads, device streams, communication.

A step's time is what is left of it after all that it waits for has ended. Replayed with these dependencies, the
steps of CPU threads end when they were measured to; a kernel can start earlier than it did, by what launching costs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from armillary.convert.pytorch.segments import Item, Segment, segments, split

SHORT = 20_000
"""An operator's own time after its head gets a step of its own from here on (ns); shorter is part of the next step."""
APART = 200_000
"""A thread on which nothing is recorded for so long (ns) was waiting for another thread."""
WAKING = 100_000
"""A thread that goes on so soon (ns) after what another one did ended was waiting for it."""
ROUNDING = 1000
"""Old traces count whole microseconds, so what was waited for can be written to end so much (ns) later."""
LATE = 50_000
"""Steps are cut where a launch ends so much (ns) before they do."""

_ENGINE = "autograd::engine::evaluate_function"


@dataclass(slots=True, eq=False)
class Step:
    """One node to be; times in ns."""

    name: str
    kind: str
    """cpu, part (an operator's later own time), host, gap, latency, queued, call, kernel, comm."""
    end: int
    key: int
    """Issue order: when the CPU came to it, ns."""
    track: int
    """Thread or stream."""
    item: Item | None = None
    waits: list[Step] = field(default_factory=list)
    begin: int = 0
    host: int = -1
    source: object = None
    """Its kernel or communication."""
    communicates: str = ""
    """What it is if it is a kernel that communicates: the "kernel", or a "further kernel", of a call."""

    @property
    def in_autograd(self) -> bool:
        """Whether it is, or is inside, a function that the autograd engine called."""
        item = self.item
        while item is not None:
            if item.name.startswith(_ENGINE):
                return True
            item = item.above
        return False

    def settle(self) -> None:
        """Drop what it cannot have waited for, and set `begin`; a kernel's is measured."""
        if self.source is None or self.track < 0:
            self.waits = [
                step for step in dict.fromkeys(self.waits) if step is not self and step.end <= self.end
            ]
            # What is left after the last wait is its duration. If all that it waited for ends in a replay when it did
            # in the recording, so does this step; by induction all CPU steps do.
            self.begin = min(self.end, max((step.end for step in self.waits), default=self.begin))
            self.key = self.begin


def _autograd(segment: Segment) -> bool:
    return segment.owner is not None and segment.owner.name.startswith(_ENGINE)


class Thread:
    """The steps of one CPU thread."""

    def __init__(self, tid: int, items: list[Item]) -> None:
        self.tid = tid
        self.items = items
        self.raw = segments(items)
        self._starts = [segment.start for segment in self.raw]
        self.cuts: set[int] = set()
        self.skip: set[int] = set()
        """Ends of stretches without record that were waits for another thread."""
        self.steps: list[Step] = []
        self.ends: list[int] = []

    def segment_at(self, time: int) -> Segment | None:
        """Return what the thread was in at `time`; None before its first and after its last item."""
        at = bisect_right(self._starts, time) - 1
        return self.raw[at] if at >= 0 and time <= self.raw[at].end else None

    def ended(self, time: int) -> int | None:
        """Return until when the thread was in what it had begun before `time`; None if it had begun nothing."""
        at = bisect_left(self._starts, time) - 1
        return min(self.raw[at].end, time) if at >= 0 else None

    def bursts(self) -> list[tuple[int, int]]:
        """Return (start, end) of the stretches of the thread with no long time without record in them."""
        if not self.raw:
            return []
        found = [[self.raw[0].start, self.raw[0].end]]
        for segment in self.raw[1:]:
            if segment.owner is None and segment.end - segment.start >= APART:
                found.append([segment.end, segment.end])
            else:
                found[-1][1] = max(found[-1][1], segment.end)
        return [(start, end) for start, end in found]

    def waits_within(self, start: int, end: int) -> Iterator[int]:
        """Return when the thread went on, between two times, that had done nothing inside an operator for long."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        for segment in self.raw[at:]:
            if segment.start > end:
                break
            owner = segment.owner
            if owner and owner.has_children and segment.end - max(segment.start, start) >= SHORT:
                yield min(segment.end, end)

    def cut_at_launches(self, launches: Iterable[tuple[int, int]]) -> None:
        """Cut segments where launches (end of the call, start of the kernel) end, if long or longer than that start."""
        last = None
        for end, start in sorted(launches):
            segment = self.segment_at(end)
            if segment is None:
                continue
            late = segment.end - end > LATE and (last is None or end - last > LATE)
            if late or segment.end > start:
                self.cuts.add(end)
                last = end

    def build(self) -> None:
        """Make the steps."""
        parts, begun = split(self.raw, self.cuts)
        carried = parts[0].start if parts else 0
        for at, part in enumerate(parts):
            length = part.end - carried
            owner = part.owner
            if not part.head and at not in begun and part.end - part.start < SHORT and at + 1 < len(parts):
                continue  # the next step carries it
            if owner is None:
                if part.end in self.skip or length <= 0:
                    carried = part.end
                    continue
                engine = (
                    bool(self.steps)
                    and self.steps[-1].in_autograd
                    and at + 1 < len(parts)
                    and _autograd(parts[at + 1])
                )
                name, kind = ("autograd::engine", "part") if engine else ("gap", "gap")
                step = Step(name, kind, part.end, part.start, self.tid)
            elif part.head:
                kind = "call" if owner.is_call else "cpu"
                step = Step(owner.name, kind, part.end, part.start, self.tid, owner, host=owner.host)
            else:
                kind = "call" if owner.is_call else "part"
                step = Step(owner.name, kind, part.end, part.start, self.tid, owner, host=owner.host)
            if self.steps:
                step.waits.append(self.steps[-1])
            step.begin = part.start if part.start in self.skip else carried
            self.steps.append(step)
            carried = part.end
        self.ends = [step.end for step in self.steps]

    def before(self, time: int) -> Step | None:
        """Return the last step that ended by `time`."""
        at = bisect_right(self.ends, time) - 1
        return self.steps[at] if at >= 0 else None

    def launching(self, time: int) -> Step | None:
        """Return the step after which what was launched at `time` could start."""
        at = bisect_left(self.ends, time)
        if at < len(self.steps) and self.ends[at] - time <= LATE:
            return self.steps[at]
        return self.before(time)

    def covering(self, time: int) -> Step | None:
        """Return the step within which `time` lies."""
        at = bisect_left(self.ends, time)
        return self.steps[at] if at < len(self.steps) and self.steps[at].begin <= time else None


class Burst(NamedTuple):
    """A stretch of a thread that another thread started."""

    thread: Thread
    start: int
    parent: Thread
    """The thread that started it."""
    woken: list[int]
    """When the parent went on that had waited for the thread."""


def fork_and_join(threads: dict[int, Thread]) -> list[Burst]:
    """Find out which thread started each burst of each thread, and when it waited for it; sets cuts and skips."""
    found = []
    spans = {tid: thread.bursts() for tid, thread in threads.items()}
    first = min((bursts[0][0] for bursts in spans.values() if bursts), default=0)
    for tid, thread in threads.items():
        for start, end in spans[tid]:
            if start == first:
                continue
            others = [
                (segment.start, -other.tid, other, segment)
                for other in threads.values()
                if other is not thread
                and (segment := other.segment_at(start)) is not None
                and segment.start < start
                and not (
                    segment.owner is None
                    and segment.end - segment.start >= APART
                    and segment.end in other.skip
                )
            ]
            if not others:
                if start == thread.raw[0].start:  # it comes after whoever was the last at work
                    before = ((other.ended(start), other) for other in threads.values())
                    known = [(until, -other.tid, other) for until, other in before if until is not None]
                    if known:
                        found.append(Burst(thread, start, max(known, key=lambda one: one[:2])[2], []))
                continue
            # A thread at work rather than one that sleeps itself, as those of a pool do.
            awake = [entry for entry in others if entry[3].owner or entry[3].end - entry[3].start < APART]
            _, _, parent, segment = max(awake or others, key=lambda entry: entry[:2])
            woken: list[int] = []
            if segment.end >= end > start and (
                segment.owner is None or segment.owner.has_children or segment.end - end <= WAKING
            ):
                woken.append(end)
            elif (begun := thread.segment_at(start)) and _autograd(begun):
                # The thread that called backward() waits for the engine's, and does what these leave to it.
                woken = list(parent.waits_within(start, end))
            parent.cuts.add(start)
            thread.skip.add(start)
            found.append(Burst(thread, start, parent, woken))
    return found


def connect(bursts: Sequence[Burst]) -> None:
    """Add the dependencies between threads, after `Thread.build`."""
    for thread, start, parent, woken in bursts:
        at = bisect_left(thread.ends, start)
        while at < len(thread.steps) and thread.steps[at].key < start:
            at += 1
        cause = parent.before(start)
        if cause and at < len(thread.steps):
            thread.steps[at].waits.append(cause)
        for time in woken:
            last, waiting = thread.before(time), parent.covering(time)
            if last and waiting:
                waiting.waits.append(last)
