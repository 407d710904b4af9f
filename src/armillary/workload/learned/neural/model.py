"""The neural model: a library of what can be chosen, and the weights of a network that chooses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from armillary.workload.learned.model import StatisticalModel
from armillary.workload.learned.neural.grammar import Grammar
from armillary.workload.learned.neural.lexicon import Lexicon
from armillary.workload.learned.neural.network import Floats, Sizes


@dataclass
class NeuralModel:
    """All that is learned.

    Attributes:
        base: The library: vocabulary, variants, references, sums and rules.
        grammar: Of programs.
        sizes: Of the network.
        weights: Of the network.
        scales: Mean and standard deviation of every feature of a condition, (2, features).
        about: What it was trained on, and with which loss.
    """

    base: StatisticalModel
    grammar: Grammar
    sizes: Sizes
    weights: dict[str, Floats]
    scales: Floats
    about: dict[str, Any] = field(default_factory=dict)

    def lexicon(self) -> Lexicon:
        """Return the numbers of tokens and candidates."""
        return Lexicon(self.base, self.grammar.blocks)
