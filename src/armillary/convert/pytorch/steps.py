"""The work of one rank as steps that wait for each other: CPU threads, device streams, communication.

A step lasts from the end of its last dependency to its own end. In a replay, the steps of CPU threads thus end at
their measured times; a kernel can start earlier than measured, by the cost of its launch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from armillary.base.allowed import Pace
from armillary.convert.pytorch.segments import Item, Segment, segments, split

SHORT = 20_000
"""An operator's own time after its head becomes a step if it is at least this long (ns); less joins the next step."""
APART = 200_000
"""A thread without records for this long (ns) was waiting for another thread."""
WAKING = 100_000
"""A thread that continues within this time (ns) of the end of other work was waiting for it."""
ROUNDING = 1000
"""Old traces count whole microseconds, so the recorded end of a dependency can be this much (ns) too late."""
LATE = 50_000
"""Steps are cut at the end of a launch if they last this much (ns) longer."""

_ENGINE = "autograd::engine::evaluate_function"


@dataclass(slots=True, eq=False)
class Step:
    """A future node; times in ns."""

    name: str
    kind: str
    """cpu, part (an operator's later own time), host, gap, latency, queued, call, kernel, comm."""
    end: int
    key: int
    """Issue order: when the CPU reached it, ns."""
    track: int
    """Thread or stream."""
    item: Item | None = None
    waits: list[Step] = field(default_factory=list)
    begin: int = 0
    host: int = -1
    source: object = None
    """Its kernel or communication."""
    communicates: str = ""
    """For a communicating kernel, whether it is the "kernel" or a "further kernel" of its call; else empty."""

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
        """Drop impossible waits and set `begin`, except that a kernel's is measured."""
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
        """Ends of unrecorded stretches that were waits for another thread."""
        self.steps: list[Step] = []
        self.ends: list[int] = []

    def segment_at(self, time: int) -> Segment | None:
        """Return the segment at `time`; None before the first item of the thread and after its last."""
        at = bisect_right(self._starts, time) - 1
        return self.raw[at] if at >= 0 and time <= self.raw[at].end else None

    def ended(self, time: int) -> int | None:
        """Return until when, at most `time`, the segment begun last before `time` lasted; None if there is none."""
        at = bisect_left(self._starts, time) - 1
        return min(self.raw[at].end, time) if at >= 0 else None

    def bursts(self) -> list[tuple[int, int]]:
        """Return (start, end) of the stretches of the thread between long unrecorded times."""
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
        """Yield when, from `start` to `end`, the thread continued after a long idle time inside an operator."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        for segment in self.raw[at:]:
            if segment.start > end:
                break
            owner = segment.owner
            # A leaf computes; only an operator with children can idle between them.
            if owner and owner.has_children and segment.end - max(segment.start, start) >= SHORT:
                yield min(segment.end, end)

    def idle_until(self, start: int, end: int) -> int | None:
        """Return when, from `start` to `end`, the longest time between operators ended; None if all are short."""
        found = [
            (segment.end - max(segment.start, start), segment.end)
            for segment in self.raw[
                max(bisect_right(self._starts, start) - 1, 0) : bisect_left(self._starts, end)
            ]
            if segment.end <= end and (segment.owner is None or segment.owner.has_children)
        ]
        longest, until = max(found, default=(0, 0))
        return until if longest >= SHORT else None

    def cut_at_launches(self, launches: Iterable[tuple[int, int]]) -> None:
        """Cut segments where launches (end of the call, start of the kernel) end, if long or longer than that start."""
        last = None
        for end, start in sorted(launches):
            segment = self.segment_at(end)
            if segment is None:
                continue
            # A cut for every launch would double the graph; one for each LATE ns keeps kernels as early as that.
            late = segment.end - end > LATE and (last is None or end - last > LATE)
            if late or segment.end > start:
                self.cuts.add(end)
                last = end

    def build(self) -> None:
        """Make the steps."""
        parts, begun = split(self.raw, self.cuts)
        # Time of short parts is carried into the next step, so that all steps together still cover the thread.
        carried = parts[0].start if parts else 0
        for at, part in enumerate(parts):
            length = part.end - carried
            owner = part.owner
            if not part.head and at not in begun and part.end - part.start < SHORT and at + 1 < len(parts):
                continue  # the next step carries it
            if owner is None:
                # A wait for another thread has no duration: `connect` makes it a dependency.
                if part.end in self.skip or length <= 0:
                    carried = part.end
                    continue
                engine = (
                    # Unrecorded time between two functions of the engine is its own bookkeeping, no unknown wait.
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
            # After a wait nothing is carried over: the thread did not work before it.
            step.begin = part.start if part.start in self.skip else carried
            self.steps.append(step)
            carried = part.end
        self.ends = [step.end for step in self.steps]

    def before(self, time: int) -> Step | None:
        """Return the last step that ended by `time`."""
        at = bisect_right(self.ends, time) - 1
        return self.steps[at] if at >= 0 else None

    def launching(self, time: int) -> Step | None:
        """Return the step whose end allows a kernel launched at `time` to start."""
        at = bisect_left(self.ends, time)
        # The step that launched it, if it ends soon after; a long one would hold the kernel up, so take the
        # one before.
        if at < len(self.steps) and self.ends[at] - time <= LATE:
            return self.steps[at]
        return self.before(time)

    def covering(self, time: int) -> Step | None:
        """Return the step that covers `time`, or None."""
        at = bisect_left(self.ends, time)
        return self.steps[at] if at < len(self.steps) and self.steps[at].begin <= time else None


class Burst(NamedTuple):
    """A stretch of a thread that another thread started."""

    thread: Thread
    start: int
    parent: Thread
    """The thread that started it."""
    woken: list[int]
    """Times at which the parent continued after waiting for the thread."""


def fork_and_join(threads: dict[int, Thread]) -> list[Burst]:
    """Return each burst with the thread that started it and the times of its waits for it; sets cuts and skips."""
    found = []
    spans = {tid: thread.bursts() for tid, thread in threads.items()}
    first = min((bursts[0][0] for bursts in spans.values() if bursts), default=0)
    # Each burst is compared with each thread.
    total = sum(map(len, spans.values()))
    pace, done = Pace("what starts CPU threads", total, "bursts of work", "fewer threads"), 0
    for tid, thread in threads.items():
        for start, end in spans[tid]:
            pace.at(done)
            done += 1
            # The first burst of all has no cause in the trace.
            if start == first:
                continue
            # Threads inside a segment at that time, unless they slept through it in a wait that is known as such.
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
            # The parent did nothing else until the burst ended: it joined the thread. A leaf operator may
            # just be computing, unless it ends right after.
            if segment.end >= end > start and (
                segment.owner is None or segment.owner.has_children or segment.end - end <= WAKING
            ):
                woken.append(end)
            elif (begun := thread.segment_at(start)) and _autograd(begun):
                # The thread that called backward() waits for the engine's, and does what these leave to it.
                woken = list(parent.waits_within(start, end))
            # The parent's step must end at the fork, so that the burst does not wait for all of it.
            parent.cuts.add(start)
            thread.skip.add(start)
            found.append(Burst(thread, start, parent, woken))
    return found


def connect(bursts: Sequence[Burst]) -> None:
    """Add the dependencies between threads, after `Thread.build`."""
    for thread, start, parent, woken in bursts:
        at = bisect_left(thread.ends, start)
        # Steps that began before `start` belong to the burst before, even if they end later.
        while at < len(thread.steps) and thread.steps[at].key < start:
            at += 1
        cause = parent.before(start)
        if cause and at < len(thread.steps):
            thread.steps[at].waits.append(cause)
        for time in woken:
            last, waiting = thread.before(time), parent.covering(time)
            if last and waiting:
                waiting.waits.append(last)
