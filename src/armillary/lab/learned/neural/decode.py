"""Decoding: the network scores, grammar and candidates limit what it may choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.expressions import library, table_of
from armillary.lab.learned.neural.grammar import BLOCK, CLOSE, END, STEP, Written, read
from armillary.lab.learned.neural.inputs import count_features, features
from armillary.lab.learned.neural.lexicon import Group
from armillary.lab.learned.neural.network import Floats, NeuralModel, hidden
from armillary.lab.learned.neural.noise import Noise

_MOST_PIECES = 200_000
_UNCOUNTED = (BLOCK, STEP, CLOSE, END)
Place = tuple[str, tuple[str, ...]]
"""Role and surroundings of a piece."""


@dataclass(frozen=True)
class Program:
    """Blocks of a step, each as its roles, and the logarithm of their probability."""

    blocks: list[list[str]]
    score: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The symbols of a piece, and the hidden state of the network at each, (symbols, width)."""

    symbols: tuple[int, ...]
    states: Floats


class Decoder:
    """Decodes programs and pieces with a model."""

    def __init__(self, model: NeuralModel) -> None:
        self.model = model
        self.lexicon = model.lexicon()
        self.names = list(self.lexicon.tokens)
        self._steps = {role: self._messages(role) for role in self.lexicon.roles}
        self._tries: dict[str, dict[tuple[int, ...], list[int]]] = {}

    def scaled(self, conditions: Sequence[Mapping[str, Value]]) -> Floats:
        """Return the features of conditions, scaled as in training, (conditions, features)."""
        found = (features(conditions) - self.model.scales[0]) / self.model.scales[1]
        # Far beyond the corpus the network has seen no such input; 4 standard deviations are as far as it goes.
        scaled: Floats = np.clip(found, -4, 4).astype(np.float32)
        return scaled

    def programs(
        self, conditions: Sequence[Mapping[str, Value]], noises: Sequence[Noise]
    ) -> list[Program | None]:
        """Return a program for each condition and noise; None: it is too long or empty."""
        model, weights, tokens = self.model, self.model.weights, self.lexicon.tokens
        values = table_of(library(), conditions)
        scaled = self.scaled(conditions)
        written: list[list[Written]] = [[] for _ in conditions]
        scores = np.zeros(len(conditions))
        live = list(range(len(conditions)))
        # Programs that are not complete have the same length, so a step needs no padding.
        while live and len(written[live[0]]) < model.sizes.positions:
            length = 1 + len(written[live[0]])
            ids = np.array([[tokens["<program>"], *(tokens[name] for name, _ in written[at])] for at in live])
            # The counts of the tokens before each position, one behind the tokens, as in training.
            before = np.array([[-1, -1, *(count for _, count in written[at])][:length] for at in live])
            states = hidden(weights, model.sizes, ids, scaled[live], None, count_features(before))[:, -1]
            counts = states @ weights["count"] + weights["count.bias"]
            follow = states @ weights["next"] + weights["next.bias"]
            left = []
            for row, at in enumerate(live):
                own = written[at]
                # The state after a token gives its count first, then the next token.
                if own and own[-1][0] not in _UNCOUNTED:
                    count, score = noises[at].count(counts[row], values[:, at])
                    own[-1] = own[-1][0], count
                    scores[at] += score
                names = model.grammar.allowed([name for name, _ in own])
                # The grammar's own tokens are the last resort: a program may be impossible, which is checked later.
                there = [each for each in names if self._may(each, conditions[at])]
                allowed = [tokens[each] for each in there or names]
                token, score = noises[at].token(follow[row], allowed)
                scores[at] += score
                own.append((self.names[token], -1))
                if self.names[token] != END:
                    left.append(at)
            live = left
        return [
            Program(blocks, float(score))
            if at not in live and _pieces(each) <= _MOST_PIECES and (blocks := read(each))
            else None
            for at, (each, score) in enumerate(zip(written, scores, strict=True))
        ]

    def _messages(self, role: str) -> set[int]:
        """Return the signed numbers of stages that the messages in pieces of a role cross."""
        symbols = self.model.base.vocabulary.symbols
        own = [symbols[at] for each in self.model.base.roles[role].symbols for at in each]
        return {
            int(each.constant("comm_dst", each.constant("comm_src", 0)))
            for each in own
            if each.constant("comm_axis") == "pp"
        }

    def _may(self, name: str, condition: Mapping[str, Value]) -> bool:
        """Return whether the stages exist with which a role exchanges messages."""
        before, after = int(condition.get("stage", 0)), int(condition.get("stages_left", 0))
        return all(-before <= steps <= after for steps in self._steps.get(name, ()))

    def pieces(
        self, places: Sequence[Place], condition: Mapping[str, Value], noise: Noise
    ) -> dict[Place, Chosen]:
        """Return the symbols and states of pieces; every piece is a variant that its role has in the corpus."""
        weights, first, end = self.model.weights, self.lexicon.first_symbol, self.lexicon.tokens[END]
        prefixes: list[tuple[int, ...]] = [() for _ in places]
        live = list(range(len(places)))
        while live:
            left = []
            for at in live:
                # The network is asked only where there is a choice.
                follow = self._continued(places[at][0])
                while len(follow[prefixes[at]]) == 1 and follow[prefixes[at]][0] != end:
                    prefixes[at] += (follow[prefixes[at]][0] - first,)
                if len(follow[prefixes[at]]) > 1:
                    left.append(at)
            states = self._states([places[at] for at in left], [prefixes[at] for at in left], condition)
            live = []
            for at, own in zip(left, states, strict=True):
                logits = own[-1] @ weights["next"] + weights["next.bias"]
                token, _ = noise.token(logits, self._continued(places[at][0])[prefixes[at]])
                if token != end:
                    prefixes[at] += (token - first,)
                    live.append(at)
        # Once more over the finished pieces: choices at a token use the state there.
        states = self._states(places, prefixes, condition)
        return {
            place: Chosen(symbols, own[1:])
            for place, symbols, own in zip(places, prefixes, states, strict=True)
        }

    def _states(
        self, places: Sequence[Place], prefixes: Sequence[tuple[int, ...]], condition: Mapping[str, Value]
    ) -> list[Floats]:
        """Return the hidden states of each piece, at its role and at every symbol."""
        if not places:
            return []
        lexicon = self.lexicon
        ids = np.zeros((len(places), 1 + max(map(len, prefixes))), np.int64)
        for row, ((role, _), prefix) in enumerate(zip(places, prefixes, strict=True)):
            ids[row, 0] = lexicon.tokens[role]
            ids[row, 1 : len(prefix) + 1] = np.array(prefix, np.int64) + lexicon.first_symbol
        near = np.array([lexicon.surroundings(around) for _, around in places])
        scaled = np.repeat(self.scaled([condition]), len(places), 0)
        found = hidden(self.model.weights, self.model.sizes, ids, scaled, near, None)
        return [own[: len(prefix) + 1] for own, prefix in zip(found, prefixes, strict=True)]

    def chosen(self, state: Floats, group: Group, noise: Noise) -> int:
        """Return the index of the chosen candidate of a group at a token, given the hidden state there."""
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
                # A variant may be a prefix of another one.
                found[symbols].add(self.lexicon.tokens[END])
            self._tries[role] = {prefix: sorted(each) for prefix, each in found.items()}
        return self._tries[role]


def _pieces(written: Sequence[Written]) -> int:
    """Return an upper bound of the number of pieces of a program."""
    total, inside, times, step = 0, 0, 1, False
    longest = 0
    # The last mark closes the last section.
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
