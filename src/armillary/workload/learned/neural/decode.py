"""Decoding: the network proposes, grammar and candidates decide what it may propose.

Draws use the Gumbel maximum (Gumbel, 1954; Maddison et al., *A\\* Sampling*, 2014). The noise belongs to what is drawn, not
to where, so that all ranks of a trace that have the same choice to make decide alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.errors import InputError
from armillary.workload.learned.conditions import Value
from armillary.workload.learned.expressions import library, table_of
from armillary.workload.learned.neural.grammar import CLOSE, END, STEP, BLOCK, Written, read
from armillary.workload.learned.neural.inputs import count_features, features
from armillary.workload.learned.neural.lexicon import Group, Lexicon
from armillary.workload.learned.neural.model import NeuralModel
from armillary.workload.learned.neural.network import Floats, hidden

_MOST_PIECES = 200_000
_UNCOUNTED = (BLOCK, STEP, CLOSE, END)
Place = tuple[str, tuple[str, ...]]
"""Role and surroundings of a piece."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The symbols of a piece, and the hidden state of the network at each, (symbols, width)."""

    symbols: tuple[int, ...]
    states: Floats


class Noise:
    """What is added to logits before the largest is taken."""

    def __init__(self, seed: int, temperature: float, lexicon: Lexicon) -> None:
        self.temperature = temperature
        rng = np.random.default_rng(seed)
        self._token = rng.gumbel(size=lexicon.size) if temperature else np.zeros(lexicon.size)
        self._count = rng.gumbel(size=len(library())) if temperature else np.zeros(len(library()))
        self._choice = rng.gumbel(size=lexicon.candidates) if temperature else np.zeros(lexicon.candidates)

    def token(self, logits: Floats, allowed: Sequence[int]) -> int:
        """Return the token that is drawn of those allowed."""
        own = np.array(allowed)
        return int(own[np.argmax(logits[own] + self.temperature * self._token[own])])

    def count(self, logits: Floats, values: NDArray[np.int64]) -> int:
        """Return the count that is drawn, given those of all expressions; without noise they vote."""
        if self.temperature:
            return max(0, int(values[np.argmax(logits + self.temperature * self._count)]))
        share = np.exp(logits.astype(np.float64) - logits.max())
        known, which = np.unique(np.maximum(values, 0), return_inverse=True)
        return int(known[np.argmax(np.bincount(which, share))])

    def choice(self, logits: Floats, group: Group) -> int:
        """Return which candidate of a group is drawn."""
        own = slice(group.first, group.first + len(group))
        return int(np.argmax(logits + self.temperature * self._choice[own]))


class Decoder:
    """Reads programs and pieces off a model."""

    def __init__(self, model: NeuralModel) -> None:
        self.model = model
        self.lexicon = model.lexicon()
        self.names = list(self.lexicon.tokens)
        self._tries: dict[str, dict[tuple[int, ...], list[int]]] = {}

    def scaled(self, conditions: Sequence[Mapping[str, Value]]) -> Floats:
        """Return the features of conditions as the network knows them."""
        found = (features(conditions) - self.model.scales[0]) / self.model.scales[1]
        scaled: Floats = np.clip(found, -4, 4).astype(np.float32)
        return scaled

    def program(self, condition: Mapping[str, Value], noise: Noise) -> list[list[str]]:
        """Return the blocks of a step, each as its roles.

        Raises:
            InputError: the program is too long to be one.
        """
        model, weights, tokens = self.model, self.model.weights, self.lexicon.tokens
        values = table_of(library(), [condition])[:, 0]
        scaled = self.scaled([condition])
        written: list[Written] = []
        names: list[str] = []
        while allowed := model.grammar.allowed(names):
            length = len(names) + 1
            if length > model.sizes.positions:
                raise InputError("the program that was drawn does not end, expected a lower temperature")
            ids = np.array([[tokens["<program>"], *(tokens[each] for each in names)]])
            before = np.array([[-1, -1, *(count for _, count in written)][:length]])
            state = hidden(weights, model.sizes, ids, scaled, None, count_features(before))[0, -1]
            if names and names[-1] not in _UNCOUNTED:
                logits = state @ weights["count"] + weights["count.bias"]
                written[-1] = (names[-1], noise.count(logits, values))
            logits = state @ weights["next"] + weights["next.bias"]
            name = self.names[noise.token(logits, [tokens[each] for each in allowed])]
            names.append(name)
            written.append((name, -1))
        if _pieces(written) > _MOST_PIECES:
            raise InputError("the program that was drawn is too long, expected a lower temperature")
        return read(written)

    def pieces(
        self, places: Sequence[Place], condition: Mapping[str, Value], noise: Noise
    ) -> dict[Place, Chosen]:
        """Return the symbols of pieces; a prefix of one that the role has is continued as one of those was."""
        model, weights, lexicon = self.model, self.model.weights, self.lexicon
        scaled = np.repeat(self.scaled([condition]), len(places), 0)
        near = np.array([lexicon.surroundings(around) for _, around in places])
        rows = [[lexicon.tokens[role]] for role, _ in places]
        found: dict[Place, Chosen] = {}
        live = list(range(len(places)))
        while live:
            ids = np.array([rows[at] for at in live])
            states = hidden(weights, model.sizes, ids, scaled[live], near[live], None)
            logits = states[:, -1] @ weights["next"] + weights["next.bias"]
            left = []
            for row, at in enumerate(live):
                role = places[at][0]
                prefix = tuple(each - lexicon.first_symbol for each in rows[at][1:])
                token = noise.token(logits[row], self._continued(role)[prefix])
                if token == lexicon.tokens[END]:
                    found[places[at]] = Chosen(prefix, states[row, 1:])
                else:
                    rows[at].append(token)
                    left.append(at)
            live = left
        return found

    def chosen(self, state: Floats, group: Group, noise: Noise) -> int:
        """Return which candidate of a group is right at a token, given the hidden state there."""
        if len(group) == 1:
            return 0
        own, weights = slice(group.first, group.first + len(group)), self.model.weights
        return noise.choice(weights["choice"][own] @ state + weights["choice.bias"][own], group)

    def residual(self, state: Floats, group: Group) -> float:
        """Return the factor by which a number differs from its formula."""
        if group.residual < 0:
            return 1.0
        left = float(self.model.weights["residual"][group.residual] @ state)
        return float(np.exp(group.scale * max(-3.0, min(3.0, left))))

    def _continued(self, role: str) -> dict[tuple[int, ...], list[int]]:
        if role not in self._tries:
            found: dict[tuple[int, ...], set[int]] = defaultdict(set)
            for symbols in self.model.base.roles[role].symbols:
                for at, symbol in enumerate(symbols):
                    found[symbols[:at]].add(self.lexicon.first_symbol + symbol)
                found[symbols].add(self.lexicon.tokens[END])
            self._tries[role] = {prefix: sorted(each) for prefix, each in found.items()}
        return self._tries[role]


def _pieces(written: Sequence[Written]) -> int:
    """Return a bound of how many pieces a program has."""
    total, inside, times, step = 0, 0, 1, False
    longest = 0
    for token, count in [*written, (BLOCK, -1)]:
        if token in (BLOCK, STEP):
            longest, inside, step = max(longest, inside), 0, token == STEP
        elif token == "(":
            times = count
        elif token == CLOSE:
            times = 1
        elif token != END:
            inside += times * max(0, count)
            total = inside if step else total
    return total * longest
