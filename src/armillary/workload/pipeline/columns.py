"""The tasks of one pipeline rank as arrays: the same as `tasks`, without an object for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
FORWARD, BACKWARD, WEIGHT = range(3)
"""F, B and W of `Task`."""


def task_columns(
    schedule: str, stages: int, virtual: int, microbatches: int, stage: int
) -> tuple[Ints, Ints]:
    """Return kind and chunk of each task of one rank, (tasks,), in order.

    The arguments are those of `tasks`, whose conditions hold here, too.
    """
    forward = _turns(stages, virtual, microbatches)
    # Backward visits the chunks from the last to the first, in the same turns.
    backward = virtual - 1 - forward
    count = len(forward)
    if schedule == "gpipe":
        warmup = count
    elif schedule == "interleaved":
        # Megatron-LM's count: two tasks for each stage below, and a full turn for each further chunk.
        warmup = 2 * (stages - stage - 1) + (virtual - 1) * stages
    else:
        warmup = stages - stage - 1
    warmup = min(warmup, count)
    # F number i comes after i - warmup of the B, B number i after i + warmup + 1 of the F.
    index = np.arange(count)
    place = np.concatenate(
        (index + np.maximum(index - warmup, 0), index + np.minimum(index + warmup + 1, count))
    )
    kind, chunk = np.empty((2, 2 * count), np.int64)
    kind[place] = np.repeat((FORWARD, BACKWARD), count)
    chunk[place] = np.concatenate((forward, backward))
    return _deferred(kind, chunk, stage) if schedule == "zero-bubble" else (kind, chunk)


def _turns(stages: int, virtual: int, microbatches: int) -> Ints:
    """Return the chunks of all forward tasks; those of the backward tasks are the same, from the last chunk on."""
    if virtual == 1:
        return np.zeros(microbatches, np.int64)
    return np.tile(np.repeat(np.arange(virtual), stages), microbatches // stages)


def _deferred(kind: Ints, chunk: Ints, delay: int) -> tuple[Ints, Ints]:
    """Return the order with a W after each B but the first `delay`, and the W that are left at the end."""
    # Each W belongs to the B `delay` microbatches before, so the k-th B is followed by W number k - delay.
    made = np.cumsum(kind == BACKWARD)
    follows = (kind == BACKWARD) & (made > delay)
    left = min(delay, int(made[-1]))
    kind = np.append(np.insert(kind, np.flatnonzero(follows) + 1, WEIGHT), np.full(left, WEIGHT))
    return kind, np.zeros(len(kind), np.int64)
