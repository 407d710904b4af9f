"""Collectives of a group start in the order in which they were issued, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.convert.pytorch.chakra import Group
from armillary.convert.pytorch.communication import ASYNCHRONOUS, RECV, SEND, Communication
from armillary.convert.pytorch.steps import Step


def keep_group_order(steps: Sequence[Step], group_of: Callable[[Communication], Group]) -> None:
    """Let each collective wait for what the one before it in its group waited for.

    A backend takes them from one queue, so none starts before the one ahead of it; but it works on several at a
    time (gloo has two threads for each group), so none waits for the end of that.
    """
    fronts: dict[int, dict[tuple[str, int], Step]] = {}
    for step in steps:
        comm = step.source
        if not isinstance(comm, Communication) or comm.kind in (SEND, RECV):
            continue
        if not step.name.startswith(ASYNCHRONOUS):
            continue  # a stream keeps the order
        front = fronts.setdefault(group_of(comm).number, {})
        step.waits += [wait for wait in front.values() if wait not in step.waits and wait.end <= step.end]
        step.begin = min(step.end, max([step.begin, *(wait.end for wait in step.waits)]))
        for wait in step.waits:  # of one thread or stream the last is enough
            key = wait.kind if wait.kind == "comm" else "", wait.lane
            if key not in front or front[key].end <= wait.end:
                front[key] = wait
