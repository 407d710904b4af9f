"""Model files: one .npz without pickled objects, with a header in JSON that says what it was trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from armillary.errors import InputError
from armillary.files import replacing
from armillary.workload.learned.expressions import Rule
from armillary.workload.learned.model import Entry, Program, Shape, StatisticalModel, Sums, Variants
from armillary.workload.learned.monomials import VARIABLES
from armillary.workload.learned.records import arrays_of, records_of
from armillary.workload.learned.reference_kernel import COUNTED
from armillary.workload.learned.tree import Tree
from armillary.workload.learned.variation import QUANTILES
from armillary.workload.learned.vocabulary import COLUMNS, Vocabulary
from armillary.workload.learned.waits import Token, Waits

T = TypeVar("T")
FORMAT = "armillary statistical trace model"
VERSION = 2
_ARRAYS = ("ptr", "coefficients", "exponents", "error", "spread")


def save_model(model: StatisticalModel, path: Path) -> None:
    """Write a model.

    Raises:
        InputError: the file cannot be written.
    """
    header, arrays = contents_of(model)
    write_contents(path, {"format": FORMAT, "version": VERSION, **header}, arrays)


def contents_of(model: StatisticalModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a model says as JSON knows values, and its arrays."""
    header: dict[str, Any] = {
        "about": model.about, "columns": COLUMNS, "variables": VARIABLES, "domain": model.domain,
        "spread": model.spread, "shared": model.shared, "symbols": model.vocabulary.to_json(),
        "programs": [[list(kind), _program(program)] for kind, program in model.programs.items()],
        "roles": {role: _variants(each) for role, each in model.roles.items()},
    }  # fmt: skip
    arrays = {name: getattr(model.sums, name) for name in _ARRAYS}
    measured, header["measured"] = arrays_of(model.measured)
    return header, arrays | {f"measured_{name}": values for name, values in measured.items()}


def write_contents(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write a model file of some format.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def load_model_file(path: Path) -> StatisticalModel:
    """Read a model.

    Raises:
        InputError: it is none, of another version, or damaged.
    """
    return read_contents(path, {FORMAT: (VERSION, model_of)})


Reader = Callable[[Any, dict[str, Any], str], T]
"""Makes a model of header and arrays; the name of the file is for errors."""


def read_contents(path: Path, readers: Mapping[str, tuple[int, Reader[T]]]) -> T:
    """Read a model file of one of some formats, each with the version that can be read.

    Raises:
        InputError: it is none, of another version, or damaged.
    """
    expected = "a model that `armillary learn train` wrote"
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        header = json.loads(arrays["header"].tobytes())
        kind, version = header["format"], header["version"]
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}), expected {expected}"
        ) from error
    except Exception as error:
        raise InputError(f"{path}: no model, expected {expected}") from error
    known, reader = readers.get(kind, (None, None))
    if reader is None or version != known or header.get("columns") != list(COLUMNS):
        versions = " or ".join(f"'{name}' version {number}" for name, (number, _) in readers.items())
        raise InputError(f"{path}: is '{kind}' version {version}, expected {expected}, {versions}")
    try:
        return reader(header, arrays, str(path))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: damaged ({error!r:.80}), expected {expected}") from error


def model_of(header: Any, arrays: dict[str, Any], where: str) -> StatisticalModel:
    """Return the model that `contents_of` described.

    Raises:
        InputError, KeyError, ValueError, TypeError, IndexError: it is none.
    """
    vocabulary = Vocabulary.from_json(header["symbols"], where)
    sums = Sums(*(arrays[name] for name in _ARRAYS))
    terms, many = len(sums.coefficients), len(sums.error)
    if header["variables"] != list(VARIABLES) or sums.exponents.shape != (terms, len(VARIABLES)):
        raise ValueError("variables")
    if sums.ptr.shape != (many + 1,) or len(sums.spread) != many or (np.diff(sums.ptr) < 1).any():
        raise ValueError("sums")
    if many and (sums.ptr[0] != 0 or sums.ptr[-1] != terms or not np.isfinite(sums.coefficients).all()):
        raise ValueError("terms")
    programs = {tuple(kind): _read_program(each) for kind, each in header["programs"]}
    roles = {str(role): _read_variants(each, len(vocabulary), many) for role, each in header["roles"].items()}
    for program in programs.values():
        unknown = {role for symbols in program.blocks for part in symbols for role in part} - roles.keys()
        if unknown:
            raise ValueError(f"roles {sorted(unknown)}")
    domain = {str(key): list(values) for key, values in header["domain"].items()}
    listed = {
        name.removeprefix("measured_"): each for name, each in arrays.items() if name.startswith("measured_")
    }
    measured = records_of(listed, header["measured"], np.arange(len(vocabulary)))
    spread = {str(name): [float(each) for each in values] for name, values in header["spread"].items()}
    if any(len(values) != QUANTILES for values in spread.values()):
        raise ValueError("spread")
    return StatisticalModel(
        vocabulary,
        programs,
        roles,
        sums,
        domain,
        dict(header["about"]),
        measured,
        spread,
        float(header["shared"]),
    )


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
    return Program(blocks, shapes, tree, int(found[3]), [int(each) for each in found[4]])


def _slots(template: Sequence[Sequence[Any]]) -> int:
    return sum(1 if len(symbols) == 1 else 1 + len(symbols) for symbols in template)


def _pair(found: Any) -> tuple[int, int]:
    return int(found[0]), int(found[1])


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


def _read_variants(found: Any, symbols: int, sums: int) -> Variants:
    variants = [tuple(int(each) for each in listed) for listed in found["symbols"]]
    if any(not 0 <= each < symbols for variant in variants for each in variant):
        raise ValueError("symbols")
    waits = {
        _token(token): _read_waits(lists, tails, tree, symbols)
        for token, lists, tails, tree in found["waits"]
    }
    chosen = Tree.from_json(found["tree"])
    _check_tree(chosen, len(variants))
    numbers = [[_read_entry(each, sums) for each in entries] for entries in found["numbers"]]
    places = Tree.from_json(found["places"])
    _check_tree(places, len(numbers))
    return Variants(variants, chosen, bool(found["loose"]), waits, places, numbers)


def _read_waits(lists: Any, tails: Any, tree: Any, symbols: int) -> Waits:
    references = [tuple((int(form), int(named), int(n)) for form, named, n in each) for each in lists]
    if any(not -1 <= named < symbols for each in references for _, named, _ in each):
        raise ValueError("symbols")
    rules = {(int(which), int(place)): Rule.from_json(rule) for which, place, rule in tails}
    found = Waits(references, rules, Tree.from_json(tree))
    _check_tree(found.tree, len(references))
    wanted = {
        (which, place)
        for which, each in enumerate(references)
        for place, (form, _, _) in enumerate(each)
        if form in COUNTED
    }
    if wanted != set(rules):
        raise ValueError("counts of references")
    return found


def _token(found: Any) -> Token:
    name, kind, occurrence = found
    return str(name), int(kind), int(occurrence)


def _read_entry(found: Any, sums: int) -> Entry:
    token, column, tree, rule, choice = found
    chosen = Tree.from_json(tree)
    if rule is None and choice is None:
        _check_tree(chosen, sums)
    if not 0 <= int(column) < len(COLUMNS):
        raise ValueError(f"column {column}")
    return Entry(
        _token(token), int(column), chosen, Rule.from_json(rule) if rule else None,
        Tree.from_json(choice) if choice else None,
    )  # fmt: skip
