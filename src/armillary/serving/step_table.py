"""Times of steps as tables that the loop reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepTable:
    """Times of a step of one replica.

    Attributes:
        dense: (tokens + 1) ns of all kernels and collectives but attention and head, by tokens of the step.
        head: (sequences + 1) ns of what chooses tokens, by sequences that get one.
        axes: Points of the axes of `attention`: new tokens of prompts, tokens before them, sequences that decode,
            tokens before each of these.
        attention: ps of the attention of all layers, in that order.
        issued: ns that the CPU takes to issue the kernels of a step, and the tokens up to which steps with and without
            prompts are graphs, which it issues at once; 1: prompts that are shorter than their sum take the time of
            their own lengths, as queries of long ones see no more keys than those of others (sparse attention); drafts
            before a step, and layers of the model, of which each draft takes one.
        together: (tokens + 1) ns of what ranks with requests of their own do together, their experts, by tokens of each
            on average; of one element: there is nothing.
        assumptions: What it takes from elsewhere, a sentence each.
    """

    dense: Ints
    head: Ints
    axes: tuple[Ints, Ints, Ints, Ints]
    attention: Ints
    issued: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 1)
    together: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    assumptions: tuple[str, ...] = ()

    def arrays(self) -> tuple[Ints, ...]:
        """Return what `armillary.serving.price_kernel.step_ns` takes."""
        ends = np.concatenate(([0], np.cumsum([len(each) for each in self.axes]))).astype(np.int64)
        flat = np.concatenate(self.axes).astype(np.int64)
        attention = np.ascontiguousarray(self.attention.ravel(), np.int64)
        return self.dense, self.head, flat, ends, attention, np.array(self.issued, np.int64), self.together
