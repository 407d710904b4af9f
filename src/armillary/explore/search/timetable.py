"""The tasks of a pipeline in topological order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from armillary.explore.search.pipeline_kernel import ALONE, BESIDE, FILLS
from armillary.workload.pipeline.tasks import tasks

Ints = NDArray[np.int64]
FORWARD, BACKWARD, MAKES, LAST = range(4)
"""Kinds of lists of segments: forward; backward without gradients of weights; with them; the last of a chunk."""


@dataclass(frozen=True, eq=False)
class Timetable:
    """A schedule in the form that `pipeline_kernel.run` reads.

    Attributes:
        tasks: (tasks x TASK_COLUMNS) The list of a task is (chunk x stages + stage) x 4 + kind.
        own: Tasks by rank, in order.
        own_ptr: CSR offsets of the ranks in `own`.
        deferred: Whether gradients of weights are tasks of their own.
    """

    tasks: Ints
    own: Ints
    own_ptr: Ints
    deferred: bool


@lru_cache(maxsize=512)
def timetable(
    schedule: str, stages: int, virtual: int, microbatches: int, overlap: bool = False
) -> Timetable:
    """Return the tasks of a schedule; a message into virtual stage v is number 2v, one back out of it 2v + 1.

    With `overlap` a task runs beside the one before it, and tasks of weight gradients fill the gaps.
    """
    orders = tasks(schedule, stages, virtual, microbatches)
    virtuals = stages * virtual
    deferred = any(task.kind == "W" for task in orders[0])
    makes = "W" if deferred else "B"
    # A task is known by a number: its kind, virtual stage and microbatch.
    base = {"F": 0, "B": virtuals * microbatches, "W": 2 * virtuals * microbatches}
    last = [{task.chunk: i for i, task in enumerate(order) if task.kind == makes} for order in orders]
    number = [-1] * (3 * virtuals * microbatches)
    waiting = [-1] * len(number)
    rows: list[tuple[int, int, int, int, int, int]] = []
    own: list[list[int]] = [[] for _ in orders]
    # A topological sort by ranks: a stage places its tasks in order until one lacks its parent,
    # and goes on when that parent is placed. Each stage waits for at most one task.
    at, stack = [0] * stages, list(range(stages))
    while stack:
        stage = stack.pop()
        order, ends = orders[stage], last[stage]
        for i in range(at[stage], len(order)):
            kind, microbatch, chunk = order[i]
            v = chunk * stages + stage
            key = base[kind] + v * microbatches + microbatch
            # The lag after the last message, which is 0, for tasks that wait for none.
            needs, lag = -1, 2 * virtuals
            # Forward follows the forward of the virtual stage before.
            if kind == "F" and v:
                needs, lag = key - microbatches, 2 * v
            # Backward follows its own forward in the last virtual stage, else the backward of the next.
            elif kind == "B":
                needs = v * microbatches + microbatch
                if v + 1 < virtuals:
                    needs, lag = key + microbatches, 2 * v + 3
            parent = number[needs] if needs >= 0 else -1
            # Not placed yet: the stage that places it wakes this one.
            if parent < 0 <= needs:
                waiting[needs] = stage
                at[stage] = i
                break
            which = (
                FORWARD if kind == "F" else BACKWARD if kind != makes else LAST if ends[chunk] == i else MAKES
            )
            number[key] = len(rows)
            own[stage].append(len(rows))
            beside = (FILLS if kind == "W" else BESIDE) if overlap else ALONE
            rows.append((stage, 4 * v + which, parent, lag, int(kind == "B"), beside))
            if waiting[key] >= 0:
                stack.append(waiting[key])
                waiting[key] = -1
        else:
            at[stage] = len(order)
    return Timetable(
        np.array(rows, np.int64).ravel(), np.array([each for mine in own for each in mine], np.int64),
        np.cumsum([0, *map(len, own)]).astype(np.int64), deferred,
    )  # fmt: skip
