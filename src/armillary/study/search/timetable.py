"""The tasks of a pipeline in an order in which each comes after what it works on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from armillary.workload.pipeline.tasks import Task, tasks

Ints = NDArray[np.int64]
FORWARD, BACKWARD, MAKES, LAST = range(4)
"""Kinds of lists of segments: forward; backward without gradients of weights; with them; the last of a chunk."""


@dataclass(frozen=True, eq=False)
class Timetable:
    """What `pipeline_kernel.run` needs to know of a schedule.

    Attributes:
        tasks: (tasks x TASK_COLUMNS) The list of a task is (chunk x stages + stage) x 4 + kind.
        own: Tasks by rank, in order.
        own_ptr: Where those of a rank begin.
        deferred: Whether gradients of weights are tasks of their own.
    """

    tasks: Ints
    own: Ints
    own_ptr: Ints
    deferred: bool


@lru_cache(maxsize=512)
def timetable(schedule: str, stages: int, virtual: int, microbatches: int) -> Timetable:
    """Return the tasks of a schedule; a message into virtual stage v is number 2v, one back out of it 2v + 1."""
    orders = tasks(schedule, stages, virtual, microbatches)
    virtuals = stages * virtual
    own_weight = {(task.microbatch, task.chunk) for task in orders[0] if task.kind == "W"}
    last = [{task.chunk: i for i, task in enumerate(order) if _makes(task, own_weight)} for order in orders]
    number: dict[tuple[str, int, int], int] = {}
    rows: list[tuple[int, int, int, int, int]] = []
    own: list[list[int]] = [[] for _ in orders]
    at, stack = [0] * stages, list(range(stages))
    waiting: dict[tuple[str, int, int], int] = {}
    while stack:
        stage = stack.pop()
        order = orders[stage]
        while at[stage] < len(order):
            task = order[at[stage]]
            v = task.chunk * stages + stage
            needs, lag = _needs(task, v, virtuals)
            if needs and needs not in number:
                waiting[needs] = stage
                break
            makes = _makes(task, own_weight)
            kind = FORWARD if task.kind == "F" else BACKWARD if not makes else MAKES
            if makes and last[stage][task.chunk] == at[stage]:
                kind = LAST
            key = (task.kind, v, task.microbatch)
            number[key] = len(rows)
            own[stage].append(len(rows))
            parent = number[needs] if needs else -1
            rows.append((stage, 4 * v + kind, parent, lag, int(task.kind == "B")))
            at[stage] += 1
            if key in waiting:
                stack.append(waiting.pop(key))
    return Timetable(
        np.array(rows, np.int64).ravel(), np.array([each for mine in own for each in mine], np.int64),
        np.cumsum([0, *map(len, own)]).astype(np.int64), bool(own_weight),
    )  # fmt: skip


def _makes(task: Task, own_weight: set[tuple[int, int]]) -> bool:
    return task.kind == "W" or (task.kind == "B" and (task.microbatch, task.chunk) not in own_weight)


def _needs(task: Task, v: int, virtuals: int) -> tuple[tuple[str, int, int] | None, int]:
    """Return the task whose result a task works on, and the number of the message that brings it."""
    none = 2 * virtuals
    if task.kind == "F":
        return (("F", v - 1, task.microbatch), 2 * v) if v else (None, none)
    if task.kind == "B":
        if v + 1 < virtuals:
            return ("B", v + 1, task.microbatch), 2 * v + 3
        return ("F", v, task.microbatch), none
    return None, none
