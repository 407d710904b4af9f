"""Communication by threads of a backend (gloo, MPI, UCC): when it ran, and which threads waited for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable

from armillary.convert.pytorch.communication import Communication
from armillary.convert.pytorch.device import CpuOp
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import SHORT, WAKING, Step, Thread

Issued = list[tuple[Communication, CpuOp | None]]

_QUEUES = 1 << 41
"""Added to the number of a thread for the track of its queue; exceeds any thread's number."""


def match_events(comms: list[Communication], linked: Linked, events: list[CpuOp]) -> Issued:
    """Return every communication with the backend's annotation of it, or None.

    An annotation's id is given out right after that of the operator that issues it, on the same thread; without
    ids, the k-th annotation is that of the k-th communication.
    """
    if not events:
        return [(comm, None) for comm in comms]
    if all(event.rf_id > 0 for event in events):
        ids = sorted((linked.host.nodes[comm.node].rf_id, at) for at, comm in enumerate(comms))
        found: dict[int, CpuOp] = {}
        for event in sorted(events, key=lambda event: event.rf_id):
            place = bisect_right(ids, (event.rf_id, len(comms))) - 1
            if place >= 0:
                # The greatest id not above the annotation's is the operator that issued it.
                found.setdefault(ids[place][1], event)
    else:
        found = dict(enumerate(sorted(events, key=lambda event: event.start)))
    return [(comm, found.get(at)) for at, comm in enumerate(comms)]


def cut_at_issue(threads: dict[int, Thread], issued: Issued) -> None:
    """Cut the operator that issues a communication at the start of the communication, if it lasts longer."""
    for comm, event in issued:
        for thread in threads.values() if event else ():
            assert event is not None
            segment = thread.segment_at(event.start)
            owner = segment.owner if segment else None
            while owner and owner.host != comm.node:
                owner = owner.above
            if owner:
                thread.cuts.add(event.start)


def add_workers(threads: dict[int, Thread], heads: dict[int, Step], issued: Issued) -> list[Step]:
    """Return steps for communications outside of device streams."""
    made: list[Step] = []
    last: dict[int, Step] = {}
    for comm, event in sorted(issued, key=lambda pair: pair[1].start if pair[1] else 0):
        issue = heads.get(comm.node)
        if event is None:
            # Nothing tells how long it took. It takes no time and stands where it was issued.
            end = issue.end if issue else 0
            step = Step(comm.kind, "comm", end, end, -1, begin=end, host=comm.node, source=comm)
            step.waits = [issue] if issue else []
            made.append(step)
            continue
        if issue:
            # The operator may first have waited for its operand, as for a DTensor that is still being reduced.
            last_before = threads[issue.track].before(event.start)
            if issue.end > event.start or (last_before and _is_within(last_before.item, comm.node)):
                issue = last_before
        key = issue.end if issue else event.start
        step = Step(event.name, "comm", event.end, key, event.tid, host=comm.node, source=comm)
        # One thread of the backend does one communication after another.
        waits = [step for step in (issue, last.get(event.tid)) if step]
        ready = max((step.end for step in waits), default=event.start)
        if event.start - ready >= SHORT:
            # Messages of gloo are annotated on the thread that calls, which does not wait meanwhile.
            queue = event.tid + (_QUEUES if event.tid in threads else 0)
            queued = Step(f"{event.name} queued", "queued", event.start, key, queue, begin=ready, waits=waits)
            queued.source = event
            made.append(queued)
            waits = [queued]
        step.waits, step.begin = waits, max((wait.end for wait in waits), default=event.start)
        last[event.tid] = step
        made.append(step)
    return made


def _is_within(item: Item | None, node: int) -> bool:
    while item is not None and item.host != node:
        item = item.above
    return item is not None


def wake(threads: Collection[Thread], made: Iterable[Step]) -> None:
    """Let the threads that waited for communication wait: not only the issuing one may call ``wait()``."""
    for comm in made:
        # The one before it on its thread may have been found to end earlier than recorded.
        comm.begin = max((step.end for step in comm.waits), default=comm.begin)
        if comm.kind == "comm" and comm.track >= 0:
            for thread in threads:
                _wake(thread, comm)


def _wake(thread: Thread, comm: Step) -> None:
    # What a thread was in when the communication ended may have been a wait for it.
    step = thread.covering(comm.end)
    if step is None or (step.item is None and step.kind != "gap"):
        return
    item = step.item
    computes = item is not None and not item.has_children and not _waits(item.name)
    # A waiting step ends soon after the communication. A quarter of its length is allowed, as it may do
    # its own work then.
    late = step.end - comm.end
    if not computes and late <= max(WAKING, (step.end - step.begin) // 4):
        step.waits.append(comm)


def _waits(name: str) -> bool:
    return "wait" in name or name.startswith(("c10d", "_c10d")) or "barrier" in name
