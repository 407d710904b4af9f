"""Trains the statistical model on a corpus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.learned.conditions import Value, of_class, program_of, several_layers, uneven
from armillary.lab.learned.contexts import LEVELS, at_level, surroundings
from armillary.lab.learned.corpus import Corpus
from armillary.lab.learned.expressions import Explained, Rule
from armillary.lab.learned.model import Entry, Program, Shape, StatisticalModel, Sums, Variants
from armillary.lab.learned.monomials import VARIABLES, Fitter, Sum, logarithms_of
from armillary.lab.learned.motifs import Template
from armillary.lab.learned.packed import Packed
from armillary.lab.learned.pieces import Piece, Variant, loose_symbols, pieces_of
from armillary.lab.learned.places import Places, places_of
from armillary.lab.learned.records import Record
from armillary.lab.learned.skeletons import (
    Block,
    Skeleton,
    Skeletons,
    Step,
    blocks_of,
    find_skeletons,
    sequence_of,
)
from armillary.lab.learned.tree import grow
from armillary.lab.learned.variation import variation
from armillary.lab.learned.vocabulary import AT, COLUMNS, Vocabulary, token_keys
from armillary.lab.learned.waits import learn_waits

SMALL = ("number", "comm_tag", "comm_src", "comm_dst", "comm_root", "comm_priority", "stream", "tid", "gap")
"""Columns that hold counts or names, not sizes."""


@dataclass(eq=False)
class _Class:
    """A class of ranks of the corpus."""

    condition: dict[str, Value]
    packed: Packed
    pieces: list[Piece]
    around: list[tuple[str, ...]]


@dataclass(eq=False)
class _Seen:
    """The pieces of a role, one for each different surroundings in a class."""

    variants: dict[Variant, int] = field(default_factory=dict)
    where: list[tuple[int, tuple[str, ...], int, int]] = field(default_factory=list)
    """Class, surroundings, variant, first token."""


def train(
    corpus: Corpus, *, seed: int = 0, told: Callable[[str], None] = lambda what: None
) -> StatisticalModel:
    """Fit a model.

    Args:
        corpus: The traces.
        seed: Seed for choosing examples where there are very many.
        told: Called with the name of the part that is fitted next.

    Raises:
        InputError: the corpus is empty, or holds something that cannot be modelled.
    """
    if not corpus.records:
        raise InputError("the corpus has no traces, expected one at least")
    told("pieces")
    # Only generated traces have a condition to learn from; traces of files are kept as they are (`measured`).
    made = [record for record in corpus.records if not record.rank_graph]
    loose = loose_symbols((each for record in made for each in record.classes), corpus.vocabulary)
    classes = []
    for record in made:
        for stage, packed in enumerate(record.classes):
            pieces = pieces_of(packed, corpus.vocabulary, loose)
            around = surroundings(
                [each.role for each in pieces],
                [each.loose for each in pieces],
                [each.microbatch for each in pieces],
            )
            classes.append(_Class(of_class(record.condition, stage), packed, pieces, around))
    told("programs")
    programs = _programs(classes)
    told("pieces and what they wait for")
    seen = _seen(classes)
    rng = np.random.default_rng(seed)
    conditions = [each.condition for each in classes]
    if classes:
        # Without classes there are no roles either, and neither is used.
        explained, fitter = Explained(conditions), Fitter(logarithms_of(conditions), conditions)
    roles, sums = {}, list[Sum]()
    for role, found in seen.items():
        told(f"numbers of {role}")
        roles[role] = _variants(role, found, classes, corpus.vocabulary, explained, fitter, sums, rng)
    sizes = [len(packed) for record in corpus.records for packed in record.classes]
    about: dict[str, Any] = {
        "sources": corpus.sources, "traces": len(corpus.records), "classes": len(sizes), "tokens": sum(sizes),
        "digest": corpus.digest, "seed": seed,
    }  # fmt: skip
    measured = [record for record in corpus.records if record.rank_graph]
    spread, shared = variation(measured, corpus.vocabulary)
    domain = _domain(made)
    return StatisticalModel(
        corpus.vocabulary, programs, roles, _stacked(sums), domain, about, measured, spread, shared
    )


def _domain(records: Sequence[Record]) -> dict[str, list[Value]]:
    keys = dict.fromkeys(key for record in records for key in record.condition)
    return {
        key: sorted(
            {record.condition[key] for record in records if key in record.condition},
            key=lambda v: (str(type(v)), v),
        )
        for key in keys
    } | {"uneven": list[Value](sorted({uneven(record.condition) for record in records}))}


def _programs(classes: Sequence[_Class]) -> dict[tuple[Value, ...], Program]:
    kinds: dict[tuple[Value, ...], list[int]] = defaultdict(list)
    for at, each in enumerate(classes):
        kinds[program_of(each.condition)].append(at)
    if not classes:
        return {}
    explained = Explained([each.condition for each in classes])
    parsed: dict[tuple[Value, ...], tuple[Skeletons, list[Skeleton]]] = {}
    # A slot is one count of a template (kind of program, step, block or None for the step itself, place):
    # here the rows and values of all its examples.
    slots: dict[tuple[Any, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for kind, members in kinds.items():
        parsed[kind] = find_skeletons([classes[at].pieces for at in members])
        templates = parsed[kind][0].blocks
        for at, skeleton in zip(members, parsed[kind][1], strict=True):
            step = parsed[kind][0].steps[skeleton.step]
            for where, counts in ((None, skeleton.times), *skeleton.blocks.items()):
                kinds_of = _kinds_of_counts(step, templates, where, str(kind[1]))
                for place, count in enumerate(counts):
                    key = kind, skeleton.step, where, place
                    rows, values = slots[key]
                    alike[key] = kinds_of[place]
                    if count >= 0:  # -1: the loop is absent
                        rows.append(at)
                        values.append(count)
    arrays = {
        key: (np.array(rows, np.int64), np.array(values, np.int64)) for key, (rows, values) in slots.items()
    }
    # All counts vote before any rule is chosen: a rule is preferred for what it explains elsewhere.
    for key, rows_and_counts in arrays.items():
        explained.vote(*rows_and_counts, alike[key])
    rules = {
        key: explained.rule(*each, alike[key], steady=key[2] is not None) if len(each[0]) else Rule()
        for key, each in arrays.items()
    }
    found = {}
    for kind, members in kinds.items():
        skeletons, of_class_ = parsed[kind]
        shapes = []
        for place, step in enumerate(skeletons.steps):
            blocks: dict[Any, list[Rule]] = {block: [] for symbols in step for block in symbols}
            shape = Shape(step, [], dict(blocks), _counters(skeletons, step))
            for (_, _, where, _), rule in _of_shape(rules, kind, place):
                (shape.times if where is None else shape.blocks.setdefault(where, [])).append(rule)
            for at, own in zip(members, of_class_, strict=True):
                if own.step == place:
                    made = shape.microbatches(sequence_of(step, own.times))  # type: ignore[arg-type]
                    true = [batch for batch, _ in blocks_of(classes[at].pieces)]
                    # Whether counting occurrences gives back the labels of the corpus; if not, such programs
                    # are refused.
                    shape.counted = shape.counted and made == true
            shapes.append(shape)
        tree = grow([classes[at].condition for at in members], [each.step for each in of_class_])
        layered = sorted({several_layers(classes[at].condition) for at in members})
        found[kind] = Program(skeletons.blocks, shapes, tree, len(members), layered)
    return found


def _kinds_of_counts(
    step: Step, blocks: Sequence[Template[str]], where: Block | None, schedule: str
) -> list[list[Hashable]]:
    """Return the kinds of each count of a step, or of a block, the narrowest kind first."""
    found: list[list[Hashable]] = []
    if where is None:
        for loop, symbols in enumerate(step):
            content = tuple(blocks[block[0]] for block in symbols)
            for place in range(_counted(symbols)):
                # From the same content of the loop, over the same loop of a schedule, to the same loop of any.
                wide = schedule, loop, len(symbols), place
                found.append([("step", schedule, content, place), ("step", *wide), ("step", *wide[1:])])
        return found
    for loop, roles in enumerate(blocks[where[0]]):
        for place in range(_counted(roles)):
            found.append([("block", blocks[where[0]], loop, place), ("block", roles, place)])
    return found


def _counted(symbols: Sequence[Any]) -> int:
    """Return the number of counts of a loop of these symbols, see `counts_of`."""
    return 1 if len(symbols) == 1 else 1 + len(symbols)


def _of_shape(
    rules: dict[tuple[Any, ...], Rule], kind: tuple[Value, ...], step: int
) -> list[tuple[Any, Rule]]:
    own = [(key, rule) for key, rule in rules.items() if key[0] == kind and key[1] == step]
    return sorted(own, key=lambda each: (each[0][2] is not None, each[0][2] or (0, 0), each[0][3]))


def _counters(skeletons: Skeletons, step: Any) -> dict[Any, str]:
    """Return for each block the role whose occurrences count its microbatches."""
    return {
        block: counter_of([role for symbols in skeletons.blocks[block[0]] for role in symbols])
        for block in dict.fromkeys(block for symbols in step for block in symbols)
    }


def counter_of(roles: Sequence[str]) -> str:
    """Return the role whose occurrences count the microbatches of a block: the first firm one; "": it has none."""
    return "" if "optimizer" in roles else next((role for role in roles if _firm(role)), roles[0])


def _firm(role: str) -> bool:
    return role.partition(" ")[0] not in ("receive", "send", "weights", "gradients")


def _seen(classes: Sequence[_Class]) -> dict[str, _Seen]:
    found: dict[str, _Seen] = defaultdict(_Seen)
    for at, each in enumerate(classes):
        known: set[tuple[str, tuple[str, ...], Variant, Any, Any]] = set()
        rows, references = each.packed.row, each.packed.reference
        for piece, around in zip(each.pieces, each.around, strict=True):
            span = slice(piece.first, piece.first + len(piece.variant))
            # Equal pieces of a class (its layers) are one example: else long programs would outweigh short ones.
            key = (piece.role, around, piece.variant, rows[span].tobytes(), references[span].tobytes())
            if key in known:
                continue
            known.add(key)
            own = found[piece.role]
            variant = own.variants.setdefault(piece.variant, len(own.variants))
            own.where.append((at, around, variant, piece.first))
    return found


def _variants(
    role: str,
    seen: _Seen,
    classes: Sequence[_Class],
    vocabulary: Vocabulary,
    explained: Explained,
    fitter: Fitter,
    sums: list[Sum],
    rng: np.random.Generator,
) -> Variants:
    """Learn the variants of a role."""
    symbols = list(seen.variants)
    chosen = dict[int, int]()
    for at, _, variant, _ in seen.where:
        # A class has one variant of a role as a rule; where it has several, the first stands for it.
        chosen.setdefault(at, variant)
    tree = grow([classes[at].condition for at in chosen], list(chosen.values()))
    loose = any(piece.loose for piece in classes[seen.where[0][0]].pieces if piece.role == role)
    keys = [token_keys(variant, vocabulary) for variant in symbols]
    waits = learn_waits(
        [(at, around, keys[variant], first) for at, around, variant, first in seen.where],
        [each.packed for each in classes], explained.conditions, explained, vocabulary, rng,
    )  # fmt: skip
    places = _places(seen, classes, symbols)
    numbers = _numbers(seen, classes, symbols, vocabulary, places, explained, fitter, sums)
    return Variants(symbols, tree, loose, waits, places.tree, numbers)


def _level(seen: _Seen, classes: Sequence[_Class], symbols: Sequence[Variant]) -> int:
    """Return the smallest level of surroundings that determines the numbers within every class."""
    # Few keys generalise best, so the first level that explains the corpus is the one to use.
    for level in range(len(LEVELS)):
        known: dict[tuple[int, tuple[str, ...]], bytes] = {}
        for at, around, variant, first in seen.where:
            span = classes[at].packed.row[first : first + len(symbols[variant])].tobytes()
            if known.setdefault((at, at_level(around, level)), span) != span:
                break
        else:
            return level
    return len(LEVELS) - 1


def _places(seen: _Seen, classes: Sequence[_Class], symbols: Sequence[Variant]) -> Places:
    """Group the surroundings of a role by equal numbers."""
    level = _level(seen, classes, symbols)
    spans: dict[tuple[str, ...], dict[int, bytes]] = {}
    for at, around, variant, first in seen.where:
        span = classes[at].packed.row[first : first + len(symbols[variant])].tobytes()
        spans.setdefault(at_level(around, level), {}).setdefault(at, span)
    return places_of(level, spans, len(classes))


def _numbers(
    seen: _Seen,
    classes: Sequence[_Class],
    symbols: Sequence[Variant],
    vocabulary: Vocabulary,
    places: Places,
    explained: Explained,
    fitter: Fitter,
    sums: list[Sum],
) -> list[list[Entry]]:
    """Fit every column of every token, place by place; variants share a fit, and a fit may ask for the variant."""
    values: list[dict[Any, list[tuple[int, int, int]]]] = [defaultdict(list) for _ in range(places.many)]
    done = set()
    for at, around, variant, first in seen.where:
        key = places.of(around)
        if (at, key) in done:
            continue
        done.add((at, key))
        packed = classes[at].packed
        found = packed.rows[packed.row[first : first + len(symbols[variant])], 1:]
        for token, row, symbol in zip(
            token_keys(symbols[variant], vocabulary), found.tolist(), symbols[variant], strict=True
        ):
            for column in vocabulary.symbols[symbol].columns:
                values[key][token, column].append((at, variant, row[column]))
            if row[AT["duration_micros"]]:
                values[key][token, AT["duration_micros"]].append((at, variant, row[AT["duration_micros"]]))
    return [
        [
            entry
            for (token, column), examples in tokens.items()
            if COLUMNS[column] not in ("layer", "micro_batch")
            and (entry := _entry(token, column, examples, explained, fitter, sums)) is not None
        ]
        for tokens in values
    ]


def _entry(
    token: tuple[str, int, int],
    column: int,
    examples: Sequence[tuple[int, int, int]],
    explained: Explained,
    fitter: Fitter,
    sums: list[Sum],
) -> Entry | None:
    table = np.array(examples, np.int64)
    rows, variants, found = table.T
    if not found.any():
        return None
    # Sums of monomials are positive; names, tags and ranks are small counts with a rule, or choices.
    if COLUMNS[column] in SMALL or (found <= 0).any():
        rule = explained.rule(rows, found)
        if rule.exact:
            return Entry(token, column, rule=rule)
        return Entry(
            token, column, choice=grow([explained.conditions[at] for at in rows.tolist()], found.tolist())
        )
    return Entry(token, column, fitter.fit(rows, found.astype(np.float64), variants, sums))


def _stacked(sums: Sequence[Sum]) -> Sums:
    sizes = [len(each.coefficients) for each in sums]
    none: NDArray[Any] = np.zeros((0, len(VARIABLES)))
    return Sums(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([each.coefficients for each in sums] or [np.zeros(0)]),
        np.concatenate([each.exponents for each in sums] or [none]).astype(np.float64),
        np.array([each.error for each in sums]),
        np.array([each.spread for each in sums]),
    )
