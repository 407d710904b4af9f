"""New traces from the statistical model, for any condition that it covers.

All classes of ranks of a trace are made together, on the grid of the plan, with groups and peers as rules. References
name earlier tokens only, so a graph has no cycle. Sends and receives, and the collectives of ranks with different
programs, are checked to fit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.lab.learned.agreement import check_agreement, check_microbatches
from armillary.lab.learned.conditions import WORDS, Value, of_class, program_of, several_layers, uneven, wish
from armillary.lab.learned.contexts import surroundings
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.made_pieces import Made, PieceMaker, joined
from armillary.lab.learned.model import Shape, StatisticalModel
from armillary.lab.learned.monomials import logarithms_of
from armillary.lab.learned.requests import check_modelled, completed
from armillary.lab.learned.skeletons import length_of, sequence_of
from armillary.lab.learned.tokens import Tokens
from armillary.lab.learned.variation import drawn_factors
from armillary.lab.learned.vocabulary import AT
from armillary.trace import Trace

TIMES = [AT["duration_ns"], AT["duration_micros"]]
"""Columns to which variation is added; sizes must agree between ranks and follow their condition."""
_MOST_PIECES = 20_000_000
"""Most pieces of a rank: a step of 1,000 layers in 10,000 microbatches."""


class Sampler:
    """Makes traces; one sampler serves for many."""

    def __init__(self, model: StatisticalModel) -> None:
        self.model = model
        self.layouts = Layouts.of(model.vocabulary)
        self._pieces = PieceMaker(model)
        self._measured = {str(each.condition["trace"]): each for each in model.measured}

    def sample(self, given: Mapping[str, Value], *, seed: int = 0, temperature: float = 0.0) -> Trace:
        """Return a trace for a condition; keys that are left out have their usual values.

        Args:
            given: The condition; ``trace`` names a trace of files that the corpus has.
            seed: Seed of the variation.
            temperature: Scales the variation of durations; 0: none.

        Raises:
            InputError: the condition is invalid, or the model cannot make such a trace; gives the reason.
        """
        if "trace" in given or not self.model.programs:
            return self._like_measured(given, seed, temperature)
        wished = wish(completed(given))
        check_modelled(wished)
        condition = wished.condition
        beyond = self.check(condition)
        self._pieces.guessed.clear()
        sequences = self.sequences(condition)
        grid = wished.grid
        check_agreement(sequences, self.model.vocabulary)
        graphs = tuple(
            graph_of_tokens(each, self.layouts, f"stage {stage}", strict=True)
            for stage, each in enumerate(sequences)
        )
        about = {
            "learned": {
                "condition": condition, "beyond": beyond, "guessed": sorted(self._pieces.guessed), "seed": seed,
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
        """Return the names of the conditions that lie outside the range of the corpus.

        Raises:
            InputError: one cannot be extrapolated: a word, a number of which the corpus has one value, or cp, whose
                rings are written out.
        """
        beyond = []
        for key, value in condition.items():
            known = self.model.domain.get(key, [])
            # These two follow from the parallelism and the microbatches, which are checked themselves.
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
            # Layers repeat: pieces of one role in the same surroundings are equal and made once.
            place = made.get((role, near))
            if place is None:
                place = made[role, near] = len(pieces)
                pieces.append(self._pieces.piece(role, chosen[role], near, condition, values))
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
        # The length is known from the counts, and checked before anything of that size is allocated.
        times = [self._pieces.value(rule, condition, "the step") for rule in shape.times]
        _check_length(length_of(shape.step, times))
        blocks = sequence_of(shape.step, times)
        inside = {}
        for block in dict.fromkeys(blocks):
            rules = shape.blocks[block]  # type: ignore[index]
            counts = [self._pieces.value(rule, condition, f"block {block[0]}") for rule in rules]  # type: ignore[index]
            _check_length(length_of(program.blocks[block[0]], counts))  # type: ignore[index]
            inside[block] = sequence_of(program.blocks[block[0]], counts)  # type: ignore[index]
        _check_length(sum(len(inside[block]) for block in blocks))
        roles: list[str] = []
        batches: list[int] = []
        for block, batch in zip(blocks, shape.microbatches(blocks), strict=True):  # type: ignore[arg-type]
            # A block is one microbatch, so all its pieces have the same label.
            roles += inside[block]  # type: ignore[arg-type]
            batches += [batch] * len(inside[block])
        return roles, batches

    def _nearest(self, kind: tuple[Value, ...]) -> str:
        return _kind_text(
            max(self.model.programs, key=lambda other: sum(a == b for a, b in zip(kind, other, strict=True)))
        )

    def _like_measured(self, given: Mapping[str, Value], seed: int, temperature: float) -> Trace:
        """Return a trace with the program of a trace of files and newly drawn durations."""
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
        # Without any spread the drawn trace would equal the recorded one, which is not what was requested.
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


def _kind_text(kind: tuple[Value, ...]) -> str:
    """Return a kind of program as messages name it, see `program_of`."""
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
