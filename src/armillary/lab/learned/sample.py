"""New traces from the statistical model, for any condition that it can be asked for.

All classes of ranks of a trace are made together, on the grid of the plan, with groups and peers as rules. References
name earlier tokens only, so a graph has no cycle; that sends and receives, and the collectives of ranks that have
different programs, fit is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest, one_of
from armillary.lab.learned.agreement import check_agreement, check_microbatches
from armillary.lab.learned.conditions import (
    WORDS,
    Value,
    of_class,
    program_of,
    several_layers,
    uneven,
    wish,
)
from armillary.lab.learned.contexts import KEYS, surroundings
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.model import Entry, Shape, StatisticalModel, Variants
from armillary.lab.learned.monomials import logarithms_of
from armillary.lab.learned.reference_kernel import IF_ANY
from armillary.lab.learned.requests import check_modelled, completed
from armillary.lab.learned.skeletons import length_of, sequence_of
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.variation import drawn_factors
from armillary.lab.learned.vocabulary import AT, COLUMNS, NUMBERS, token_keys
from armillary.lab.learned.waits import Waits
from armillary.trace import Trace

Ints = NDArray[np.int64]
TIMES = [AT["duration_ns"], AT["duration_micros"]]
"""Columns that are drawn with what the fit left; sizes must agree between ranks and follow their condition."""
_TOO_LARGE = 2.0**62
_MOST_PIECES = 20_000_000
"""Of a rank: a step of 1,000 layers in 10,000 microbatches."""
_FIT = "numbers of a trace have 63 bits"
_KEPT = 20_000
"""Lists of references of pieces that are kept, at most."""


@dataclass(frozen=True, eq=False)
class Made:
    """A piece: its symbols, numbers, and references."""

    symbols: Ints
    numbers: Ints
    sizes: Ints
    references: Ints


@dataclass(frozen=True, eq=False)
class _Fixed:
    """What the numbers of a variant are, by where it is: entries that need no question, as arrays, and the others."""

    token: Ints
    column: Ints
    sums: Ints
    others: tuple[tuple[int, Entry], ...]


class Sampler:
    """Makes traces; keep one for many."""

    def __init__(self, model: StatisticalModel) -> None:
        self.model = model
        self.layouts = Layouts.of(model.vocabulary)
        self._asked: dict[tuple[str, int], tuple[list[Waits], tuple[str, ...]]] = {}
        self._waiting: dict[tuple[Any, ...], tuple[Ints, Ints, list[tuple[int, Rule]]]] = {}
        self._fixed: dict[tuple[str, int, int], _Fixed] = {}
        self._guessed: set[str] = set()
        self._measured = {str(each.condition["trace"]): each for each in model.measured}

    def sample(self, given: Mapping[str, Value], *, seed: int = 0, temperature: float = 0.0) -> Trace:
        """Return a trace for a condition; keys that are left out have their usual values.

        Args:
            given: What is wished for; ``trace`` names a trace of files that the corpus has.
            seed: Of what is drawn.
            temperature: Scales what is drawn of durations; 0: nothing is drawn.

        Raises:
            InputError: the condition is none, or the model cannot make such a trace; says why.
        """
        if "trace" in given or not self.model.programs:
            return self._like_measured(given, seed, temperature)
        wished = wish(completed(given))
        check_modelled(wished)
        condition = wished.condition
        beyond = self.check(condition)
        self._guessed.clear()
        sequences = self.sequences(condition)
        grid = wished.grid
        check_agreement(sequences, self.model.vocabulary)
        graphs = tuple(
            graph_of_tokens(each, self.layouts, f"stage {stage}", strict=True)
            for stage, each in enumerate(sequences)
        )
        about = {
            "learned": {
                "condition": condition, "beyond": beyond, "guessed": sorted(self._guessed), "seed": seed,
                "temperature": temperature,
            }
        }  # fmt: skip
        return Trace(graphs, grid.coordinate("pp").astype(np.int32), grid, about)

    def sequences(self, condition: Mapping[str, Value]) -> list[Tokens]:
        """Return the sequences of all classes of ranks, one for each pipeline stage.

        Raises:
            InputError: the corpus has no program of this kind, or no stages that differ in their number of layers.
        """
        if uneven(condition) and 1 not in self.model.domain.get("uneven", [1]):
            raise InputError(
                f"layers {condition['layers']}: no stages that differ in their number of layers in the corpus, "
                f"expected a multiple of pp {condition['pp']}"
            )
        return [self.tokens(of_class(condition, stage)) for stage in range(int(condition["pp"]))]

    def check(self, condition: Mapping[str, Value]) -> list[str]:
        """Return the conditions that lie beyond those of the corpus.

        Raises:
            InputError: one cannot be extrapolated: a word, a number of which the corpus has one value, or cp, whose
                rings are written out.
        """
        beyond = []
        for key, value in condition.items():
            known = self.model.domain.get(key, [])
            if not known or key in ("ranks", "batch"):
                continue
            numbers = [each for each in known if isinstance(each, int)]
            if key in WORDS or len(known) == 1 or key == "cp":
                if value not in known:
                    choices = one_of([str(each) for each in known]) if len(known) > 1 else str(known[0])
                    raise InputError(f"{key} {value}: not in the corpus of the model, expected {choices}")
            elif not numbers[0] <= int(value) <= numbers[-1]:
                beyond.append(key)
        return beyond

    def tokens(self, condition: Mapping[str, Value]) -> Tokens:
        """Return the sequence of a class of ranks.

        Raises:
            InputError: the corpus has no program of this kind.
        """
        roles, batches = self._program(condition)
        known = self.model.roles
        loose = [known[role].loose for role in roles]
        check_microbatches(roles, loose, batches, int(condition.get("microbatches", 0)))
        around = surroundings(roles, loose, batches)
        chosen = {role: known[role].tree.choose(condition) for role in dict.fromkeys(roles)}
        values = self.model.sums.values(logarithms_of([condition])[0])
        made: dict[tuple[str, tuple[str, ...]], int] = {}
        pieces: list[Made] = []
        order = []
        for role, near in zip(roles, around, strict=True):
            place = made.get((role, near))
            if place is None:
                place = made[role, near] = len(pieces)
                pieces.append(self._piece(role, chosen[role], near, condition, values))
            order.append(place)
        return joined(pieces, order, loose, batches)

    def _program(self, condition: Mapping[str, Value]) -> tuple[list[str], list[int]]:
        """Return the roles of all pieces and their microbatches."""
        kind = program_of(condition)
        program = self.model.programs.get(kind)
        if program is None:
            raise InputError(
                f"{_kind_text(kind)}: no program of this kind in the corpus, expected one of its "
                f"{len(self.model.programs)} kinds (nearest: {self._nearest(kind)})"
            )
        if several_layers(condition) not in program.layered:
            has, other = ("one layer", "several") if several_layers(condition) else ("several layers", "one")
            raise InputError(
                f"{_kind_text(kind)}: the corpus has programs of this kind with {has} to a stage only, which do not "
                f"show how {other} would go: expected stage_layers {'1' if has == 'one layer' else 'above 1'}"
            )
        shape: Shape = program.shapes[program.tree.choose(condition)]
        if not shape.counted:
            raise InputError(
                f"{_kind_text(kind)}: microbatches of its blocks follow no order that is learned"
            )
        times = [self._value(rule, condition, "the step") for rule in shape.times]
        _check_length(length_of(shape.step, times))
        blocks = sequence_of(shape.step, times)
        inside = {}
        for block in dict.fromkeys(blocks):
            counts = [self._value(rule, condition, f"block {block[0]}") for rule in shape.blocks[block]]  # type: ignore[index]
            _check_length(length_of(program.blocks[block[0]], counts))  # type: ignore[index]
            inside[block] = sequence_of(program.blocks[block[0]], counts)  # type: ignore[index]
        _check_length(sum(len(inside[block]) for block in blocks))
        roles: list[str] = []
        batches: list[int] = []
        for block, batch in zip(blocks, shape.microbatches(blocks), strict=True):  # type: ignore[arg-type]
            roles += inside[block]  # type: ignore[arg-type]
            batches += [batch] * len(inside[block])
        return roles, batches

    def _value(self, rule: Rule, condition: Mapping[str, Value], where: str) -> int:
        """Return the value of a rule; where it does not explain the corpus, note what it is about."""
        answer = rule.for_(condition)
        if not answer.exact:
            self._guessed.add(where)
        return answer.value(condition)

    def _nearest(self, kind: tuple[Value, ...]) -> str:
        return _kind_text(
            max(self.model.programs, key=lambda other: sum(a == b for a, b in zip(kind, other, strict=True)))
        )

    def _piece(
        self, role: str, variant: int, near: tuple[str, ...], condition: Mapping[str, Value], values: Any
    ) -> Made:
        known = self.model.roles[role]
        symbols = np.array(known.symbols[variant], np.int64)
        sizes, entries, rules = self._waits(role, variant, near, condition)
        if rules:
            entries = entries.copy()
            for at, rule in rules:
                entries[at, 2] = self._value(rule, condition, role)
        numbers = np.zeros((len(symbols), len(COLUMNS)), np.int64)
        fixed = self._numbers(role, known, variant, near)
        sizes_of = values[fixed.sums]
        if not (sizes_of < _TOO_LARGE).all():
            raise InputError(f"{role}: sizes of {sizes_of.max():.3g}, expected a smaller condition: {_FIT}")
        numbers[fixed.token, fixed.column] = np.rint(sizes_of)
        more = {**condition, "variant": f"v{variant}"}
        for token, entry in fixed.others:
            if entry.rule is not None:
                numbers[token, entry.column] = self._value(entry.rule, condition, role)
            elif entry.choice is not None:
                numbers[token, entry.column] = entry.choice.choose(condition)
            else:
                size = float(values[entry.sums.choose(more)])
                if not size < _TOO_LARGE:
                    raise InputError(f"{role}: a size of {size:.3g}, expected a smaller condition: {_FIT}")
                numbers[token, entry.column] = max(1, round(size))
        named = numbers[:, AT["number"]]
        if named.size and not 0 <= named.min() <= named.max() < NUMBERS:
            raise InputError(f"{role}: a name with number {named.max()}, expected less than {NUMBERS}")
        return Made(symbols, numbers, sizes, entries)

    def _waits(
        self, role: str, variant: int, near: tuple[str, ...], condition: Mapping[str, Value]
    ) -> tuple[Ints, Ints, list[tuple[int, Rule]]]:
        """Return how many references the tokens of a piece have, those, and rules of the counts of some."""
        asked = self._asked.get((role, variant))
        if asked is None:
            own = self.model.roles[role]
            tokens = [own.waits[each] for each in token_keys(own.symbols[variant], self.model.vocabulary)]
            decide = dict.fromkeys(key for each in tokens for key in sorted(each.tree.asked()))
            asked = self._asked[role, variant] = tokens, tuple(key for key in decide if key not in KEYS)
        tokens, keys = asked
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
            entries[:, 0] += IF_ANY * np.array(may_miss, np.int64)
            starts = np.cumsum(sizes) - sizes
            rules = [
                (int(starts[token]) + place, rule)
                for token, each in enumerate(tokens)
                for (of, place), rule in each.tails.items()
                if of == which[token]
            ]
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

    def _like_measured(self, given: Mapping[str, Value], seed: int, temperature: float) -> Trace:
        """Return a trace with the program of one in files, its durations drawn anew."""
        name = str(given.get("trace", next(iter(self._measured), "")))
        other = [key for key in given if key not in ("trace", "ranks")]
        if name not in self._measured or other:
            key = f"trace {name}" if name not in self._measured else other[0]
            raise InputError(
                f"{key}: not in the corpus of the model, which has traces {one_of(sorted(self._measured))} as they are"
                f"{nearest(name, self._measured)}"
            )
        record, rng = self._measured[name], np.random.default_rng(seed)
        ranks = record.condition["ranks"]
        if given.get("ranks", ranks) != ranks:
            raise InputError(f"ranks {given['ranks']}: trace {name} has {ranks}, expected that number")
        graphs, model = [], self.model
        names = [symbol.name for symbol in model.vocabulary.symbols]
        if temperature and not any(
            names[at] in model.spread for each in record.classes for at in each.symbols
        ):
            raise InputError(
                f"temperature {temperature:g}: the corpus has no ranks of one trace whose operators of {name} can be "
                "compared, expected 0"
            )
        for at, packed in enumerate(record.classes):
            tokens = packed.tokens()
            factors = drawn_factors(model.spread, model.shared, names, tokens.symbols, rng, temperature)
            tokens.numbers[:, TIMES] = np.rint(tokens.numbers[:, TIMES] * factors[:, None])
            graphs.append(graph_of_tokens(tokens, self.layouts, f"class {at}"))
        about = {"learned": {"condition": record.condition, "seed": seed, "temperature": temperature}}
        return Trace(tuple(graphs), np.array(record.rank_graph, np.int32), None, about)


def _check_length(pieces: int) -> None:
    """Refuse programs that would not fit into memory.

    Raises:
        InputError: there are too many pieces.
    """
    if pieces > _MOST_PIECES:
        raise InputError(
            f"a rank would have {pieces:,} pieces, expected at most {_MOST_PIECES:,}: fewer layers or microbatches"
        )


def _possible(waits: Waits, at: int, absent: set[int]) -> int:
    """Return which list is waited for: the one at a place, or the most alike if it names what the piece does not have.

    What a piece has and what its tokens wait for are learned on their own, and may differ where examples are few.
    """

    def lacks(which: int) -> bool:
        return any(named in absent for _, named, _ in waits.lists[which])

    if not lacks(at):
        return at
    fits = [which for which in range(len(waits.lists)) if not lacks(which)]
    return max(fits, key=lambda which: len({*waits.lists[which]} & {*waits.lists[at]}), default=at)


def _kind_text(kind: tuple[Value, ...]) -> str:
    """Return a kind of program for people, see `program_of`."""
    names = ("trace", "schedule", "sharding", "tied")
    words = [f"{key} {value}" for key, value in zip(names, kind, strict=False) if value != ""]
    several = (
        ("first", "later"),
        ("last", "earlier"),
        ("one replica", "several"),
        ("one microbatch", "several"),
        ("dense", "experts"),
        ("one replica of experts", "several"),
    )
    rest = [pair[int(at)] for pair, at in zip(several, kind[4:], strict=True)]
    return f"{', '.join(words)}, stage {rest[0]} and {rest[1]}, {', '.join(rest[2:])}"


def joined(
    pieces: Sequence[Made], order: Sequence[int], loose: Sequence[bool], batches: Sequence[int]
) -> Tokens:
    """Put pieces behind each other."""
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
