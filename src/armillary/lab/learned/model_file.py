"""Model files: one .npz without pickled objects, with a JSON header that describes the training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.learned.archive import check_sum, read_archive, reading, real, whole, write_archive
from armillary.lab.learned.conditions import Value, program_of
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.model import Entry, Program, Shape, StatisticalModel, Sums, Variants
from armillary.lab.learned.monomials import VARIABLES
from armillary.lab.learned.records import arrays_of, records_of, reference
from armillary.lab.learned.reference_kernel import COUNTED
from armillary.lab.learned.tree import Tree
from armillary.lab.learned.variation import QUANTILES
from armillary.lab.learned.vocabulary import COLUMNS, Vocabulary, token_keys
from armillary.lab.learned.waits import Token, Waits

T = TypeVar("T")
FORMAT = "armillary statistical trace model"
VERSION = 3
"""Version 2 has no checksum, other references and other choices of numbers; such a model must be trained again."""
_MAGNITUDES = {"coefficients": 1e18, "exponents": 8.0, "error": 1e18, "spread": 1e3}
"""Largest magnitudes of the numbers of sums; fitted exponents go to 4."""
_WIDEST = 100.0
"""Largest logarithm of the ratio of two durations."""
_MOST_COUNT = 2**31 - 1
_ARRAYS = ("ptr", "coefficients", "exponents", "error", "spread")


def save_model(model: StatisticalModel, path: Path) -> None:
    """Write a model.

    Raises:
        InputError: the file cannot be written.
    """
    header, arrays = contents_of(model)
    write_archive(path, {"format": FORMAT, "version": VERSION, **header}, arrays)


def contents_of(model: StatisticalModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a model as plain JSON values, and its arrays."""
    header: dict[str, Any] = {
        "about": model.about, "columns": COLUMNS, "variables": VARIABLES, "domain": model.domain,
        "spread": model.spread, "shared": model.shared, "symbols": model.vocabulary.to_json(),
        "programs": [[list(kind), _program(program)] for kind, program in model.programs.items()],
        "roles": {role: _variants(each) for role, each in model.roles.items()},
    }  # fmt: skip
    arrays = {name: getattr(model.sums, name) for name in _ARRAYS}
    measured, header["measured"] = arrays_of(model.measured)
    return header, arrays | {f"measured_{name}": values for name, values in measured.items()}


def load_model_file(path: Path) -> StatisticalModel:
    """Read a model.

    Raises:
        InputError: the file is no model, of another version, or damaged.
    """
    return read_contents(path, {FORMAT: (VERSION, model_of)})


Reader = Callable[[Any, dict[str, Any], str], T]
"""Makes a model of header and arrays; the name of the file is for errors."""


def read_contents(path: Path, readers: Mapping[str, tuple[int, Reader[T]]]) -> T:
    """Read a model file of any of these formats, each in the version that can be read.

    Raises:
        InputError: the file is no model, of another version, or damaged.
    """
    expected = "a model that `armillary generate learn train` wrote"
    header, arrays = read_archive(path, expected)
    kind, version = str(header.get("format"))[:60], header.get("version")
    known, reader = readers.get(kind, (None, None))
    # An older version of ours has a remedy, so it gets its own message.
    if reader is not None and isinstance(version, int) and version < (known or 0):
        raise InputError(
            f"{path}: is '{kind}' version {version}, expected version {known}: train it again with `armillary generate "
            "learn train` (its corpus can be used as it is)"
        )
    if reader is None or version != known or header.get("columns") != list(COLUMNS):
        versions = " or ".join(f"'{name}' version {number}" for name, (number, _) in readers.items())
        raise InputError(f"{path}: is '{kind}' version {version!s:.20}, expected {expected}, {versions}")
    check_sum(path, arrays, expected)
    try:
        return reader(header, arrays, str(path))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: damaged ({error!r:.80}), expected {expected}") from error


def model_of(header: Any, arrays: dict[str, Any], where: str) -> StatisticalModel:
    """Return the model that `contents_of` described.

    Raises:
        InputError, KeyError, ValueError, TypeError, IndexError: the contents are not those of a model.
    """
    with reading(where, "symbols"):
        vocabulary = Vocabulary.from_json(header["symbols"], where)
    with reading(where, "sums"):
        sums = _read_sums(header, arrays)
    many = len(sums.error)
    programs: dict[tuple[Value, ...], Program] = {}
    for place, entry in enumerate(_list(header, "programs", where)):
        with reading(where, f"programs[{place}]"):
            kind, each = entry
            programs[_kind(kind)] = _read_program(each)
    roles: dict[str, Variants] = {}
    with reading(where, "roles"):
        listed = dict(header["roles"])
    for role, each in listed.items():
        with reading(where, f"roles.{role}"):
            roles[str(role)] = _read_variants(each, vocabulary, many)
    with reading(where, "programs"):
        # Everything that one part of the file names must be in another: a file may be damaged or made by hand.
        unknown = {
            role
            for program in programs.values()
            for symbols in program.blocks
            for part in symbols
            for role in part
        } - roles.keys()
        if unknown:
            raise ValueError(f"roles {sorted(unknown)[:3]} are not there")
    with reading(where, "domain"):
        domain = {str(key): [_word(each) for each in values] for key, values in header["domain"].items()}
    with reading(where, "measured"):
        own = {
            name.removeprefix("measured_"): each
            for name, each in arrays.items()
            if name.startswith("measured_")
        }
        measured = records_of(own, header["measured"], np.arange(len(vocabulary)))
    with reading(where, "spread"):
        spread = {
            str(name): [real(each, str(name), -_WIDEST, _WIDEST) for each in values]
            for name, values in header["spread"].items()
        }
        if any(len(values) != QUANTILES for values in spread.values()):
            raise ValueError(f"expected {QUANTILES} numbers each")
        shared = real(header["shared"], "shared", 0.0, 1.0)
    with reading(where, "about"):
        about = dict(header["about"])
    return StatisticalModel(vocabulary, programs, roles, sums, domain, about, measured, spread, shared)


def _list(header: Any, key: str, where: str) -> list[Any]:
    found = header.get(key)
    if not isinstance(found, list):
        raise InputError(f"{where}: {key}: expected a list")
    return found


def _kind(found: Any) -> tuple[Value, ...]:
    """Return a kind of program, see `program_of`: words, then ones and zeros."""
    # Of an empty condition the kind has its words as "", which tells the types of its parts.
    usual = program_of({})
    if len(found) != len(usual):
        raise ValueError(f"expected {len(usual)} parts of a kind")
    return tuple(
        _word(part) if isinstance(like, str) else whole(part, "part of a kind", 0, 1)
        for part, like in zip(found, usual, strict=True)
    )


def _word(value: Any) -> Value:
    """Return a word or an integer."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{value!r:.40}, expected a word or an integer")  # named by `reading`
    return value


def _read_sums(header: Any, arrays: dict[str, Any]) -> Sums:
    sums = Sums(*(arrays[name] for name in _ARRAYS))
    terms, many = len(sums.coefficients), len(sums.error)
    if header["variables"] != list(VARIABLES) or sums.exponents.shape != (terms, len(VARIABLES)):
        raise ValueError(f"expected exponents of {len(VARIABLES)} variables for {terms} terms")
    if sums.ptr.dtype.kind != "i" or sums.ptr.shape != (many + 1,) or len(sums.spread) != many:
        raise ValueError("ptr: expected an offset for each sum and one more")
    if many and ((np.diff(sums.ptr) < 1).any() or sums.ptr[0] != 0 or sums.ptr[-1] != terms):
        raise ValueError(f"ptr: expected offsets from 0 to {terms}")
    for name, most in _MAGNITUDES.items():
        values = getattr(sums, name)
        # Written so that NaN counts as wrong.
        wrong = values[~(np.abs(values) <= most)]
        if values.dtype.kind != "f" or wrong.size:
            raise ValueError(f"{name} {wrong.ravel()[:1]}, expected numbers of at most {most:g}")
    return sums


def _program(program: Program) -> Any:
    shapes = [
        [
            shape.step,
            [rule.to_json() for rule in shape.times],
            [
                [block, [rule.to_json() for rule in rules], shape.counters[block]]
                for block, rules in shape.blocks.items()
            ],
            shape.counted,
        ]
        for shape in program.shapes
    ]
    return [program.blocks, shapes, program.tree.to_json(), program.classes, program.layered]


def _read_program(found: Any) -> Program:
    blocks = [tuple(tuple(str(role) for role in symbols) for symbols in template) for template in found[0]]
    shapes = []
    for step, times, details, counted in found[1]:
        rules = {_pair(block): [Rule.from_json(each) for each in listed] for block, listed, _ in details}
        counters = {_pair(block): str(counter) for block, _, counter in details}
        template = tuple(tuple(_pair(block) for block in symbols) for symbols in step)
        shape = Shape(template, [Rule.from_json(each) for each in times], rules, counters, bool(counted))
        if len(shape.times) != _slots(template):
            raise ValueError("counts of a step")
        for block in {block for symbols in template for block in symbols}:
            if len(rules[block]) != _slots(blocks[block[0]]):
                raise ValueError("counts of a block")
        shapes.append(shape)
    tree = Tree.from_json(found[2])
    _check_tree(tree, len(shapes))
    layered = [whole(each, "layered", 0, 1) for each in found[4]]
    return Program(blocks, shapes, tree, whole(found[3], "classes", 0, _MOST_COUNT), layered)


def _slots(template: Sequence[Sequence[Any]]) -> int:
    # A run has one count; a loop of several runs has one for itself and one for each run.
    return sum(1 if len(symbols) == 1 else 1 + len(symbols) for symbols in template)


def _pair(found: Any) -> tuple[int, int]:
    return whole(found[0], "block", 0, _MOST_COUNT), whole(found[1], "block", 0, _MOST_COUNT)


def _check_tree(tree: Tree, most: int) -> None:
    """Check that all choices are below `most`."""
    if tree.yes is None or tree.no is None:
        if not 0 <= tree.choice < most:
            raise ValueError(f"choice {tree.choice} of {most}")
        return
    _check_tree(tree.yes, most)
    _check_tree(tree.no, most)


def _variants(found: Variants) -> Any:
    waits = [
        [
            list(token),
            each.lists,
            [[*key, rule.to_json()] for key, rule in each.tails.items()],
            each.tree.to_json(),
            sorted(each.optional),
        ]
        for token, each in found.waits.items()
    ]
    numbers = [[_entry(each) for each in entries] for entries in found.numbers]
    return {
        "symbols": found.symbols, "tree": found.tree.to_json(), "loose": found.loose, "waits": waits,
        "places": found.places.to_json(), "numbers": numbers,
    }  # fmt: skip


def _entry(entry: Entry) -> Any:
    rule = entry.rule.to_json() if entry.rule else None
    choice = entry.choice.to_json() if entry.choice else None
    return [list(entry.token), entry.column, entry.sums.to_json(), rule, choice]


def _read_variants(found: Any, vocabulary: Vocabulary, sums: int) -> Variants:
    symbols = len(vocabulary)
    variants = [
        tuple(whole(each, "symbol", 0, symbols - 1) for each in listed) for listed in found["symbols"]
    ]
    if not all(variants):
        raise ValueError("a variant has no symbols")
    waits = {
        _token(token): _read_waits(lists, tails, tree, optional, symbols)
        for token, lists, tails, tree, optional in found["waits"]
    }
    missing = {each for variant in variants for each in token_keys(variant, vocabulary)} - waits.keys()
    if missing:
        raise ValueError(f"waits: expected those of {min(missing)[0]!r:.40}, too")
    chosen = Tree.from_json(found["tree"])
    _check_tree(chosen, len(variants))
    numbers = [[_read_entry(each, sums) for each in entries] for entries in found["numbers"]]
    places = Tree.from_json(found["places"])
    _check_tree(places, len(numbers))
    return Variants(variants, chosen, bool(found["loose"]), waits, places, numbers)


def _read_waits(lists: Any, tails: Any, tree: Any, optional: Any, symbols: int) -> Waits:
    references = [tuple(reference(each, symbols) for each in listed) for listed in lists]
    rules = {_pair((which, place)): Rule.from_json(rule) for which, place, rule in tails}
    found = Waits(references, rules, Tree.from_json(tree), {_pair(each) for each in optional})
    _check_tree(found.tree, len(references))
    if any(which >= len(references) or place >= len(references[which]) for which, place in found.optional):
        raise ValueError("optional: expected lists and references that are there")
    wanted = {
        (which, place)
        for which, each in enumerate(references)
        for place, (form, _, _) in enumerate(each)
        if form in COUNTED
    }
    # Exactly the references whose form has a count have a rule for it.
    if wanted != set(rules):
        raise ValueError("counts of references")
    return found


def _token(found: Any) -> Token:
    name, kind, occurrence = found
    return str(name), whole(kind, "kind", 0, 99), whole(occurrence, "occurrence", 0, _MOST_COUNT)


def _read_entry(found: Any, sums: int) -> Entry:
    token, column, tree, rule, choice = found
    chosen = Tree.from_json(tree)
    # Otherwise the tree of sums is the empty default and its choice is not used.
    if rule is None and choice is None:
        _check_tree(chosen, sums)
    return Entry(
        _token(token), whole(column, "column", 0, len(COLUMNS) - 1), chosen, Rule.from_json(rule) if rule else None,
        Tree.from_json(choice) if choice else None,
    )  # fmt: skip
