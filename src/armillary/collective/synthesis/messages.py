"""A synthesised schedule as a list of messages in the order of time, and what each waits for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.synthesis.spread import Spread
from armillary.collective.synthesis.synthesize import SynthesizedSchedule
from armillary.platform.topology.graph import Ints

MOST_WRITTEN = 500_000
"""Messages that can be written to files."""


@dataclass(frozen=True, eq=False)
class Messages:
    """(messages) columns: the edge, ends and chunk of each, and whether its receiver adds it to what it has."""

    edge: Ints
    source: Ints
    target: Ints
    chunk: Ints
    adds: Ints

    def needs(self, per_npu: int) -> list[list[int]]:
        """Return for each message the messages that its sender must have: copies of its chunk, or parts of its sum."""
        came: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for index, (node, chunk, adds) in enumerate(
            zip(self.target.tolist(), self.chunk.tolist(), self.adds.tolist(), strict=True)
        ):
            came[node, chunk, adds].append(index)
        return [
            came.get((node, chunk, adds or int(node == chunk // per_npu)), [])
            for node, chunk, adds in zip(
                self.source.tolist(), self.chunk.tolist(), self.adds.tolist(), strict=True
            )
        ]


def messages_of(schedule: SynthesizedSchedule) -> Messages:
    """Return the messages of a schedule.

    Raises:
        InputError: there are more than `MOST_WRITTEN`.
    """
    if schedule.messages > MOST_WRITTEN:
        raise InputError(
            f"{schedule.messages:,} messages are too many to be written out; expected at most {MOST_WRITTEN:,}: choose "
            f"fewer chunks per NPU than {schedule.per_npu}, or fewer NPUs than {schedule.n}"
        )
    parts: list[tuple[Spread, Ints]] = []
    if schedule.scatter:
        # A reduce-scatter runs backwards in time, so its sends are reversed.
        parts.append((schedule.scatter, np.arange(len(schedule.scatter.edge))[::-1]))
    if schedule.gather:
        parts.append((schedule.gather, np.arange(len(schedule.gather.edge))))
    edge = np.concatenate([part.edge[order] for part, order in parts]).astype(np.int64)
    chunk = np.concatenate([part.chunk[order] for part, order in parts]).astype(np.int64)
    adds = np.zeros(len(edge), np.int64)
    adds[: len(schedule.scatter.edge) if schedule.scatter else 0] = 1
    edges = schedule.edges
    return Messages(edge, edges.source[edge], edges.target[edge], chunk, adds)
