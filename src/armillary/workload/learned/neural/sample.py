"""New traces from the neural model; what holds for the statistical one (`sample`) holds here.

References name earlier tokens, all ranks of a class run one program, and what classes send each other is checked: a draw
that does not fit is drawn again, colder each time and at last without noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from armillary.errors import InputError
from armillary.trace import Trace
from armillary.workload.learned.conditions import Value
from armillary.workload.learned.contexts import surroundings
from armillary.workload.learned.monomials import logarithms_of
from armillary.workload.learned.neural.decode import Chosen, Decoder, Noise, Place
from armillary.workload.learned.neural.model import NeuralModel
from armillary.workload.learned.reference_kernel import TAIL
from armillary.workload.learned.sample import Made, Sampler, joined
from armillary.workload.learned.tokens import Tokens
from armillary.workload.learned.train import counter_of
from armillary.workload.learned.vocabulary import AT, COLUMNS

TRIES = 6
"""Draws, the last of which has no noise."""


class NeuralSampler(Sampler):
    """Makes traces; keep one for many."""

    def __init__(self, model: NeuralModel) -> None:
        super().__init__(model.base)
        self.decoder = Decoder(model)
        self._noise = Noise(0, 0.0, self.decoder.lexicon)

    def sample(self, given: Mapping[str, Value], *, seed: int = 0, temperature: float = 0.0) -> Trace:
        """Return a trace for a condition; keys that are left out have their usual values.

        Args:
            given: What is wished for.
            seed: Of what is drawn.
            temperature: Scales the noise of all choices: 0 takes the most probable, 1 draws as was learned.

        Raises:
            InputError: the condition is none, or the model cannot make such a trace; says why.
        """
        if temperature < 0:
            raise InputError(f"temperature {temperature}: expected 0 or more")
        heats = np.linspace(temperature, 0, TRIES) if temperature else np.zeros(1)
        for turn, heat in enumerate(heats.tolist()):
            self._noise = Noise(seed + turn * 1_000_003, heat, self.decoder.lexicon)
            try:
                trace = super().sample(given, seed=seed, temperature=heat)
            except InputError:
                if turn == len(heats) - 1:
                    raise
            else:
                break
        return trace

    def tokens(self, condition: Mapping[str, Value]) -> Tokens:
        """Return the sequence of a class of ranks.

        Raises:
            InputError: the program that was drawn is none.
        """
        roles: list[str] = []
        batches: list[int] = []
        turns: dict[str, int] = {}
        for block in self.decoder.program(condition, self._noise):
            counter = counter_of(block)
            turn = turns.get(counter, 0) if counter else -1
            turns[counter] = turn + 1
            roles += block
            batches += [turn] * len(block)
        if not roles:
            raise InputError("the program that was drawn is empty, expected a condition nearer to the corpus")
        loose = [self.model.roles[role].loose for role in roles]
        places = list(zip(roles, surroundings(roles, loose), strict=True))
        distinct = list(dict.fromkeys(places))
        chosen = self.decoder.pieces(distinct, condition, self._noise)
        values = self.model.sums.values(logarithms_of([condition])[0])
        pieces = [self._made(place, chosen[place], condition, values) for place in distinct]
        number = {place: at for at, place in enumerate(distinct)}
        return joined(pieces, [number[place] for place in places], loose, batches)

    def _made(
        self, place: Place, found: Chosen, condition: Mapping[str, Value], values: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> Made:
        decoder, lexicon, noise = self.decoder, self.decoder.lexicon, self._noise
        role, symbols = place[0], found.symbols
        entries: list[tuple[int, int, int]] = []
        sizes = []
        for state, symbol in zip(found.states, symbols, strict=True):
            group = lexicon.references[role, symbol]
            lists = group.references[decoder.chosen(state, group, noise)]
            sizes.append(len(lists))
            for at, (form, named, count) in enumerate(lists):
                if form == TAIL:
                    own = lexicon.tails[role, symbol, lists, at]
                    count = own.formulas[decoder.chosen(state, own, noise)].value(condition, values)
                entries.append((form, named, count))
        numbers = np.zeros((len(symbols), len(COLUMNS)), np.int64)
        for at, column, group in lexicon.items(role, symbols):
            state = found.states[at]
            value = group.formulas[decoder.chosen(state, group, noise)].value(condition, values)
            if group.residual >= 0 and value > 0:
                value = max(1, round(value * decoder.residual(state, group)))
            numbers[at, column] = value
        references = np.array(entries, np.int64).reshape(-1, 3)
        return Made(np.array(symbols, np.int64), numbers, np.array(sizes, np.int64), references)
