"""New traces from the neural model; they have the guarantees of the statistical one (`learned.sample`).

References name earlier tokens, all ranks of a class run one program, and the messages of classes fit: where those of
the most probable programs do not, the most probable programs that fit are searched for among draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.learned.agreement import check_agreement
from armillary.lab.learned.conditions import Value, of_class
from armillary.lab.learned.contexts import surroundings
from armillary.lab.learned.made_pieces import Made, joined
from armillary.lab.learned.monomials import logarithms_of
from armillary.lab.learned.neural.agree import Candidate, finish, most_probable
from armillary.lab.learned.neural.decode import Chosen, Decoder, Place
from armillary.lab.learned.neural.network import NeuralModel
from armillary.lab.learned.neural.noise import Noise
from armillary.lab.learned.reference_kernel import COUNTED
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.train import counter_of
from armillary.lab.learned.vocabulary import COLUMNS
from armillary.trace import Trace

_DRAWS = 24
"""Programs drawn for each stage where the first ones do not fit."""
_HEATS = (0.3, 0.6, 1.0, 1.5)


class NeuralSampler(Sampler):
    """Makes traces; one sampler serves for many."""

    def __init__(self, model: NeuralModel) -> None:
        super().__init__(model.base)
        self.decoder = Decoder(model)
        self._noise = Noise(0, 0.0, self.decoder.lexicon)

    def sample(self, given: Mapping[str, Value], *, seed: int = 0, temperature: float = 0.0) -> Trace:
        """Return a trace for a condition; keys that are left out have their usual values.

        Args:
            given: The condition.
            seed: Seed of the noise.
            temperature: Scales the noise of all choices: 0 takes the most probable, 1 draws from the learned
                distribution.

        Raises:
            InputError: the condition is invalid, or the model cannot make such a trace; gives the reason.
        """
        if temperature < 0:
            raise InputError(f"temperature {temperature}: expected 0 or more")
        if "trace" in given:
            raise InputError(
                f"trace {given['trace']}: a neural model makes none of files, expected --kind statistical"
            )
        self._noise = Noise(seed, temperature, self.decoder.lexicon)
        return super().sample(given, seed=seed, temperature=temperature)

    def sequences(self, condition: Mapping[str, Value]) -> list[Tokens]:
        """Return the sequences of all classes of ranks, one for each pipeline stage.

        Raises:
            InputError: no programs that were drawn fit.
        """
        stages = [of_class(condition, stage) for stage in range(int(condition["pp"]))]
        known: list[dict[Place, Chosen]] = [{} for _ in stages]
        first = self._candidates(stages, [self._noise] * len(stages), known)
        try:
            if all(first):
                found = [each[0][1] for each in first]
                check_agreement(found, self.model.vocabulary)
                if finish(found, self.model.vocabulary):
                    return found
        except InputError:
            # A single stage has no neighbour to fit: the error is about the program itself.
            if len(stages) == 1:
                raise
        # All stages draw with the same noises, so that those which make the same choices still agree.
        for draw in range(_DRAWS // len(_HEATS)):
            noises = [
                Noise(self._noise.seed + 1 + draw, heat + self._noise.temperature, self.decoder.lexicon)
                for heat in _HEATS
            ]
            more = self._candidates(
                [stage for stage in stages for _ in noises], noises * len(stages),
                [each for each in known for _ in noises],
            )  # fmt: skip
            for at, each in enumerate(more):
                # Candidates accumulate, the first ones included: Viterbi searches all that were drawn so far.
                first[at // len(noises)] += each
            fitting = most_probable(first, self.model.vocabulary)
            if fitting and finish(fitting, self.model.vocabulary):
                return fitting
        raise InputError(
            f"no programs of the {len(stages)} stages fit in {_DRAWS} draws, "
            "expected a condition nearer to the corpus or a lower temperature"
        )

    def tokens(self, condition: Mapping[str, Value]) -> Tokens:
        """Return the sequence of a class of ranks.

        Raises:
            InputError: the program that was drawn is too long or empty.
        """
        (found,) = self._candidates([condition], [self._noise], [{}])
        if not found:
            raise InputError("the program that was drawn is too long or empty, expected a lower temperature")
        return found[0][1]

    def _candidates(
        self,
        conditions: Sequence[Mapping[str, Value]],
        noises: Sequence[Noise],
        known: Sequence[dict[Place, Chosen]],
    ) -> list[list[Candidate]]:
        """Return the candidates of each class: one, or none where the program is too long or empty."""
        programs = self.decoder.programs(conditions, noises)
        return [
            [(program.score, self._tokens(program.blocks, condition, chosen))] if program else []
            for program, condition, chosen in zip(programs, conditions, known, strict=True)
        ]

    def _tokens(
        self, blocks: Sequence[Sequence[str]], condition: Mapping[str, Value], known: dict[Place, Chosen]
    ) -> Tokens:
        """Return the sequence of a program; pieces that are not in `known` yet are decoded and added to it."""
        roles: list[str] = []
        batches: list[int] = []
        turns: dict[str, int] = {}
        for block in blocks:
            counter = counter_of(block)
            turn = turns.get(counter, 0) if counter else -1
            turns[counter] = turn + 1
            roles += block
            batches += [turn] * len(block)
        loose = [self.model.roles[role].loose for role in roles]
        places = list(zip(roles, surroundings(roles, loose, batches), strict=True))
        distinct = list(dict.fromkeys(places))
        new = [place for place in distinct if place not in known]
        # Pieces are shared between candidates of a stage: with the same noise they come out the same.
        known.update(self.decoder.pieces(new, condition, self._noise))
        values = self.model.sums.values(logarithms_of([condition])[0])
        pieces = [self._made(place[0], known[place], condition, values) for place in distinct]
        number = {place: at for at, place in enumerate(distinct)}
        return joined(pieces, [number[place] for place in places], loose, batches)

    def _made(
        self, role: str, found: Chosen, condition: Mapping[str, Value], values: NDArray[np.float64]
    ) -> Made:
        decoder, lexicon, noise = self.decoder, self.decoder.lexicon, self._noise
        entries: list[tuple[int, int, int]] = []
        sizes = []
        for state, symbol in zip(found.states, found.symbols, strict=True):
            group = lexicon.references[role, symbol]
            lists = group.references[decoder.chosen(state, group, noise)]
            sizes.append(len(lists))
            for at, (form, named, count) in enumerate(lists):
                if form in COUNTED:
                    own = lexicon.tails[role, symbol, lists, at]
                    count = own.formulas[decoder.chosen(state, own, noise)].value(condition, values)
                entries.append((form, named, count))
        numbers = np.zeros((len(found.symbols), len(COLUMNS)), np.int64)
        for at, column, group in lexicon.items(role, found.symbols):
            state = found.states[at]
            value = group.formulas[decoder.chosen(state, group, noise)].value(condition, values)
            if group.residual >= 0 and value > 0:
                value = max(1, round(value * decoder.residual(state, group)))
            numbers[at, column] = value
        references = np.array(entries, np.int64).reshape(-1, 3)
        return Made(np.array(found.symbols, np.int64), numbers, np.array(sizes, np.int64), references)
