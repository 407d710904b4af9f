"""Pipeline schedules: the order of the tasks of every stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest, one_of
from armillary.workload.layers.shard import near

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "pipedream", "dualpipe")
DEFERRING = ("zero-bubble", "dualpipe")
"""Schedules in which gradients of weights have tasks of their own."""


class Task(NamedTuple):
    """What a stage does with one microbatch.

    Attributes:
        kind: F forward, B backward, W gradients of the weights. B makes these, too, unless its own W follows.
        microbatch: Counted from 0.
        chunk: Which of the rank's virtual stages, see `virtual_stage`.
    """

    kind: Literal["F", "B", "W"]
    microbatch: int
    chunk: int = 0


def tasks(schedule: str, stages: int, virtual: int, microbatches: int) -> list[list[Task]]:
    """Return the tasks of every pipeline rank, in the order in which it issues them.

    - ``gpipe``: all forward, then all backward (arXiv 1811.06965).
    - ``1f1b``: one forward, one backward, after stages - stage - 1 forward (PipeDream-Flush, arXiv 2006.09503).
    - ``interleaved``: the same over `virtual` chunks of a rank, in turns of `stages` microbatches (Megatron-LM,
      arXiv 2104.04473, §2.2).
    - ``zero-bubble``: ZB-H1 (arXiv 2401.10241, §2.3): 1F1B whose gradients of the weights follow on their own, `stage`
      microbatches later, which fills the bubble and takes on no rank more memory than 1F1B on the first.
    - ``pipedream``: 1F1B that never waits for other microbatches (arXiv 1806.03377): give it those of all iterations.
      A stage updates its weights after each B, and keeps `weight_versions` of them.
    - ``dualpipe``: microbatches enter at both ends, so that a rank has two stages and each stage two ranks
      (DeepSeek-V3, arXiv 2412.19437, §3.2.1); while the pipeline fills and drains, gradients of weights follow on
      their own.

    Raises:
        InputError: no such schedule, virtual stages in another than ``interleaved``, or microbatches that
            ``interleaved`` cannot take in turns.
    """
    check_schedule(schedule, stages, virtual, microbatches)
    if schedule == "dualpipe":
        return [_from_both_ends(stages, microbatches, stage) for stage in range(stages)]
    forward = _turns("F", stages, virtual, microbatches)
    backward = _turns("B", stages, virtual, microbatches)
    if schedule == "gpipe":
        return [forward + backward for _ in range(stages)]
    if schedule == "interleaved":
        # Two rounds per stage below rather than one, so that the first backward tasks find their gradients
        # there, and a turn of all stages for each chunk but the last (Megatron-LM).
        warmups = [2 * (stages - stage - 1) + (virtual - 1) * stages for stage in range(stages)]
    else:
        warmups = [stages - stage - 1 for stage in range(stages)]
    found = [_alternated(forward, backward, warmup) for warmup in warmups]
    if schedule == "zero-bubble":
        return [_deferred(each, stage) for stage, each in enumerate(found)]
    return found


def check_schedule(schedule: str, stages: int, virtual: int, microbatches: int) -> None:
    """Check the conditions of `tasks`.

    Raises:
        InputError: one does not hold; see `tasks`.
    """
    if schedule not in SCHEDULES:
        raise InputError(f"schedule '{schedule}': expected {one_of(SCHEDULES)}{nearest(schedule, SCHEDULES)}")
    if virtual > 1 and schedule != "interleaved":
        raise InputError(
            f"virtual {virtual}: schedule {schedule} has none, expected 1, or schedule interleaved"
        )
    if schedule == "interleaved" and microbatches % stages:
        turns = microbatches // stages
        best = near(microbatches, [stages * max(1, turns), stages * (turns + 1)])
        raise InputError(
            f"{microbatches} microbatches: schedule interleaved expects a multiple of pp {stages} (nearest: {best})"
        )

    if schedule == "dualpipe":
        if stages % 2:
            raise InputError(f"pp {stages}: schedule dualpipe expects an even number (nearest: {stages + 1})")
        if microbatches % 2 or microbatches < 2 * stages:
            best = max(2 * stages, microbatches + 1)
            raise InputError(
                f"{microbatches} microbatches: schedule dualpipe expects an even number, at least twice pp {stages} "
                f"(nearest: {best})"
            )


def chunks_of(schedule: str, virtual: int) -> int:
    """Return how many virtual stages a rank has."""
    return 2 if schedule == "dualpipe" else virtual


def virtual_stage(schedule: str, stages: int, stage: int, chunk: int) -> int:
    """Return the place in the model of a chunk of a pipeline rank: they are dealt out in turn.

    With ``dualpipe`` the first chunks of all ranks are the model, and the second ones are it once more, backward.
    """
    if schedule == "dualpipe":
        return stage if chunk == 0 else stages - 1 - stage
    return chunk * stages + stage


def weight_versions(schedule: str, stages: int, stage: int, microbatches: int) -> int:
    """Return how many versions of its weights a stage holds: one, or with pipedream one per microbatch in flight."""
    return min(stages - stage, microbatches) if schedule == "pipedream" else 1


def in_flight(tasks_of_rank: Sequence[Task], virtual: int = 1) -> NDArray[np.int64]:
    """Return the microbatches whose activations are held after each task, (tasks, virtual).

    Activations are held from F to the last task of the same microbatch and chunk.
    """
    last = {(task.microbatch, task.chunk): i for i, task in enumerate(tasks_of_rank)}
    # A cumulative sum of changes: the whole step at once instead of a set per task.
    change = np.zeros((len(tasks_of_rank), virtual), np.int64)
    for i, task in enumerate(tasks_of_rank):
        if task.kind == "F":
            change[i, task.chunk] += 1
        if last[task.microbatch, task.chunk] == i:
            change[i, task.chunk] -= 1
    return np.cumsum(change, axis=0)


def _turns(kind: Literal["F", "B"], stages: int, virtual: int, microbatches: int) -> list[Task]:
    """Return tasks by turns of `stages` microbatches: each chunk takes them all before the next one does."""
    chunks = range(virtual) if kind == "F" else range(virtual - 1, -1, -1)
    if virtual == 1:
        return [Task(kind, microbatch) for microbatch in range(microbatches)]
    return [
        Task(kind, microbatch, chunk)
        for start in range(0, microbatches, stages)
        for chunk in chunks
        for microbatch in range(start, start + stages)
    ]


def _alternated(forward: list[Task], backward: list[Task], warmup: int) -> list[Task]:
    """Return `warmup` forward tasks, then one forward and one backward as long as there are both, then the rest."""
    warmup = min(warmup, len(forward))
    found = forward[:warmup]
    for pair in zip(forward[warmup:], backward, strict=False):
        found += pair
    # The backward tasks of the warm-up's microbatches, with no forward left to pair with.
    return found + backward[len(forward) - warmup :]


def _deferred(order: list[Task], delay: int) -> list[Task]:
    """Return the order with a W after each B but the first `delay`, and the W that are left at the end."""
    found, done, made = [], 0, 0
    for task in order:
        found.append(task)
        if task.kind == "B":
            made += 1
            if made > delay:
                found.append(Task("W", done))
                done += 1
    return found + [Task("W", microbatch) for microbatch in range(done, made)]


def _from_both_ends(stages: int, microbatches: int, stage: int) -> list[Task]:
    """Return the tasks of a rank with ``dualpipe``, in the eight steps of its authors' code (deepseek-ai/DualPipe).

    The first half of the microbatches goes through chunk 0, the other half through chunk 1. For ranks of the second
    half of the pipeline the two change places. `near` is the distance to the nearer end.
    """
    half, count, near_end = stages // 2, microbatches // 2, min(stage, stages - 1 - stage)
    turned = stage >= half
    made = {(kind, chunk): 0 for kind in "FB" for chunk in (0, 1)}
    found: list[Task] = []
    left: deque[Task] = deque()

    def run(kind: Literal["F", "B"], side: int, *, deferred: bool = False) -> None:
        chunk = side ^ turned
        microbatch = made[kind, chunk] + chunk * count
        made[kind, chunk] += 1
        found.append(Task(kind, microbatch, chunk))
        if deferred:
            left.append(Task("W", microbatch, chunk))

    for _ in range(2 * (half - near_end - 1)):
        run("F", 0)
    for _ in range(near_end + 1):
        run("F", 0)
        run("F", 1)
    for _ in range(half - near_end - 1):
        run("B", 1, deferred=True)
        found.append(left.popleft())
        run("F", 1)
    for _ in range(count - stages + near_end + 1):
        run("F", 0)
        run("B", 1)
        run("F", 1)
        run("B", 0)
    for _ in range(half - near_end - 1):
        run("B", 1)
        run("F", 1)
        run("B", 0)
    # Gradients of weights are deferred in the second half of these, 2 (near_end + 1) tasks.
    for number in range(2 * (near_end + 1)):
        run("B", 1 - number % 2, deferred=number > near_end)
    for _ in range(half - near_end - 1):
        found.append(left.popleft())
        run("B", 0, deferred=True)
    return [*found, *left]
