"""The neural model: a library of what can be chosen, and the weights of a network that chooses."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.lab.learned.model import StatisticalModel
from armillary.lab.learned.neural.grammar import Grammar
from armillary.lab.learned.neural.lexicon import Lexicon
from armillary.lab.learned.neural.network import Floats, Sizes


@dataclass
class NeuralModel:
    """All that is learned.

    Attributes:
        base: The library: vocabulary, variants, references, sums and rules; it says what it was trained on.
        grammar: Of programs.
        sizes: Of the network.
        weights: Of the network.
        scales: Mean and standard deviation of every feature of a condition, (2, features).
    """

    base: StatisticalModel
    grammar: Grammar
    sizes: Sizes
    weights: dict[str, Floats]
    scales: Floats

    def lexicon(self) -> Lexicon:
        """Return the numbers of tokens and candidates."""
        return Lexicon(self.base, self.grammar.blocks)
