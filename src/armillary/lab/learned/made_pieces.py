"""Makes the pieces of programs from a model: symbols, numbers by their sums and rules, and references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.learned.conditions import Value
from armillary.lab.learned.contexts import KEYS
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.model import Entry, StatisticalModel, Variants
from armillary.lab.learned.reference_kernel import IF_ANY
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.vocabulary import AT, COLUMNS, NUMBERS, token_keys
from armillary.lab.learned.waits import Waits

Ints = NDArray[np.int64]
_TOO_LARGE = 2.0**62
_FIT = "numbers of a trace have 63 bits"
_KEPT = 20_000
"""Most lists of references of pieces that are cached."""


@dataclass(frozen=True, eq=False)
class Made:
    """A piece: symbols, numbers, the number of references of each token (`sizes`), and the references."""

    symbols: Ints
    numbers: Ints
    sizes: Ints
    references: Ints


@dataclass(frozen=True, eq=False)
class _Fixed:
    """The numbers of a variant in one place: entries that are one sum, as arrays, and the others."""

    token: Ints
    column: Ints
    sums: Ints
    others: tuple[tuple[int, Entry], ...]


class PieceMaker:
    """Makes pieces; caches what they have in common.

    Attributes:
        guessed: Roles and counts that were made by rules which do not explain the corpus.
    """

    def __init__(self, model: StatisticalModel) -> None:
        self.model = model
        self.guessed: set[str] = set()
        self._asked: dict[tuple[str, int], tuple[list[Waits], tuple[str, ...]]] = {}
        self._waiting: dict[tuple[Any, ...], tuple[Ints, Ints, list[tuple[int, Rule]]]] = {}
        self._fixed: dict[tuple[str, int, int], _Fixed] = {}

    def value(self, rule: Rule, condition: Mapping[str, Value], where: str) -> int:
        """Return the value of a rule; if it does not explain the corpus, add `where` to `guessed`."""
        answer = rule.for_(condition)
        if not answer.exact:
            self.guessed.add(where)
        return answer.value(condition)

    def piece(
        self, role: str, variant: int, near: tuple[str, ...], condition: Mapping[str, Value], values: Any
    ) -> Made:
        """Return a piece: a variant of a role among its neighbours, with `values` of the sums of the model."""
        known = self.model.roles[role]
        symbols = np.array(known.symbols[variant], np.int64)
        sizes, entries, rules = self._waits(role, variant, near, condition)
        # The entries are cached and shared, so counts that depend on the condition go into a copy.
        if rules:
            entries = entries.copy()
            for at, rule in rules:
                entries[at, 2] = self.value(rule, condition, role)
        numbers = np.zeros((len(symbols), len(COLUMNS)), np.int64)
        fixed = self._numbers(role, known, variant, near)
        sizes_of = values[fixed.sums]
        # Written so that NaN fails, too.
        if not (sizes_of < _TOO_LARGE).all():
            raise InputError(f"{role}: sizes of {sizes_of.max():.3g}, expected a smaller condition: {_FIT}")
        numbers[fixed.token, fixed.column] = np.rint(sizes_of)
        more = {**condition, "variant": f"v{variant}"}
        for token, entry in fixed.others:
            if entry.rule is not None:
                numbers[token, entry.column] = self.value(entry.rule, condition, role)
            elif entry.choice is not None:
                numbers[token, entry.column] = entry.choice.choose(condition)
            else:
                size = float(values[entry.sums.choose(more)])
                if not size < _TOO_LARGE:
                    raise InputError(f"{role}: a size of {size:.3g}, expected a smaller condition: {_FIT}")
                # A size that rounds to 0 would be an operation of nothing.
                numbers[token, entry.column] = max(1, round(size))
        named = numbers[:, AT["number"]]
        if named.size and not 0 <= named.min() <= named.max() < NUMBERS:
            raise InputError(f"{role}: a name with number {named.max()}, expected less than {NUMBERS}")
        return Made(symbols, numbers, sizes, entries)

    def _waits(
        self, role: str, variant: int, near: tuple[str, ...], condition: Mapping[str, Value]
    ) -> tuple[Ints, Ints, list[tuple[int, Rule]]]:
        """Return (references of each token, all references, [(place of a reference, rule of its count)])."""
        asked = self._asked.get((role, variant))
        if asked is None:
            own = self.model.roles[role]
            tokens = [own.waits[each] for each in token_keys(own.symbols[variant], self.model.vocabulary)]
            decide = dict.fromkeys(key for each in tokens for key in sorted(each.tree.asked()))
            asked = self._asked[role, variant] = tokens, tuple(key for key in decide if key not in KEYS)
        tokens, keys = asked
        # Only the conditions that some tree compares: others cannot change the lists.
        key = (role, variant, near, *[condition.get(each, 0) for each in keys])
        found = self._waiting.get(key)
        if found is None:
            around = {**dict(zip(KEYS, near, strict=True)), **condition}
            which = [each.tree.choose(around) for each in tokens]
            absent = self._absent(role, variant)
            which = [_possible(each, at, absent) for each, at in zip(tokens, which, strict=True)]
            lists = [each.lists[at] for each, at in zip(tokens, which, strict=True)]
            sizes = np.array([len(each) for each in lists], np.int64)
            entries = np.array([entry for each in lists for entry in each], np.int64).reshape(-1, 3)
            may_miss = [
                (at, place) in each.optional
                for each, at in zip(tokens, which, strict=True)
                for place in range(len(each.lists[at]))
            ]
            # Optional references may find no token; others must.
            entries[:, 0] += IF_ANY * np.array(may_miss, np.int64)
            starts = np.cumsum(sizes) - sizes
            rules = [
                (int(starts[token]) + place, rule)
                for token, each in enumerate(tokens)
                for (of, place), rule in each.tails.items()
                if of == which[token]
            ]
            # Conditions of many samples fill the cache; what is needed again is quickly made again.
            if len(self._waiting) >= _KEPT:
                self._waiting.clear()
            found = self._waiting[key] = sizes, entries, rules
        return found

    def _absent(self, role: str, variant: int) -> set[int]:
        """Return the symbols that only other variants of a role have."""
        own = self.model.roles[role]
        other = (each for name, each in self.model.roles.items() if name != role)
        there = {at for each in other for symbols in each.symbols for at in symbols}
        return {at for symbols in own.symbols for at in symbols} - {*own.symbols[variant]} - there

    def _numbers(self, role: str, known: Variants, variant: int, near: tuple[str, ...]) -> _Fixed:
        key = known.places.choose(dict(zip(KEYS, near, strict=True)))
        found = self._fixed.get((role, key, variant))
        if found is None:
            place = {
                token: at
                for at, token in enumerate(token_keys(known.symbols[variant], self.model.vocabulary))
            }
            meant = [
                set(self.model.vocabulary.symbols[at].columns) | {AT["duration_micros"]}
                for at in known.symbols[variant]
            ]
            # A place may hold entries of tokens or columns that this variant does not have.
            own = [
                (place[each.token], each)
                for each in known.numbers[key]
                if each.token in place and each.column in meant[place[each.token]]
            ]
            plain = [
                each
                for each in own
                if each[1].rule is None and each[1].choice is None and each[1].sums.yes is None
            ]
            table = (
                np.array([(at, each.column, each.sums.choice) for at, each in plain], np.int64)
                .reshape(-1, 3)
                .T
            )
            others = tuple(each for each in own if each not in plain)
            found = self._fixed[role, key, variant] = _Fixed(table[0], table[1], table[2], others)
        return found


def _possible(waits: Waits, at: int, absent: set[int]) -> int:
    """Return the list of references to use: `at`, or the most similar one if `at` names a symbol that is absent.

    The symbols of a piece and the references of its tokens are learned separately, so they may disagree where examples
    are few.
    """

    def lacks(which: int) -> bool:
        return any(named in absent for _, named, _ in waits.lists[which])

    if not lacks(at):
        return at
    fits = [which for which in range(len(waits.lists)) if not lacks(which)]
    return max(fits, key=lambda which: len({*waits.lists[which]} & {*waits.lists[at]}), default=at)


def joined(
    pieces: Sequence[Made], order: Sequence[int], loose: Sequence[bool], batches: Sequence[int]
) -> Tokens:
    """Return the tokens of pieces in a given order."""
    lengths = np.array([len(pieces[at].symbols) for at in order], np.int64)
    numbers = np.concatenate([pieces[at].numbers for at in order])
    numbers[:, AT["micro_batch"]] = np.repeat(np.array(batches, np.int64), lengths)
    # Pieces that are not loose are the layers of a block, as far as labels go.
    numbers[:, AT["layer"]] = np.repeat(np.cumsum([not each for each in loose]), lengths)
    references = np.concatenate([pieces[at].references for at in order])
    sizes = np.concatenate([pieces[at].sizes for at in order])
    return Tokens(
        np.concatenate([pieces[at].symbols for at in order]), numbers,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        references[:, 0].copy(), references[:, 1].copy(), references[:, 2].copy(),
    )  # fmt: skip
