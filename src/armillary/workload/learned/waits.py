"""What the tokens of a role wait for: lists of references that occur, and a tree that says which of them when.

Each token of a role has its own tree over surroundings and conditions, whatever the variant: what a kernel waits for
is learned once, not for each combination of what its layer has besides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.workload.learned.conditions import Value
from armillary.workload.learned.contexts import KEYS
from armillary.workload.learned.expressions import Explained, Rule
from armillary.workload.learned.packed import Packed, References
from armillary.workload.learned.reference_kernel import COUNTED
from armillary.workload.learned.tree import Questions, Tree

Token = tuple[str, int, int]
"""Name, kind and occurrence in its piece, see `vocabulary.token_keys`."""
Example = tuple[int, tuple[str, ...], Sequence[Token], int]
"""A piece: class, surroundings, tokens, and the first of them in the class."""
_MOST_EXAMPLES = 4000
_RARE = 100


@dataclass
class Waits:
    """What a token waits for.

    Attributes:
        lists: Lists of references that occur; of `COUNTED` forms the count is 0.
        tails: Rules of those counts, by list and reference.
        tree: Which list.
    """

    lists: list[References] = field(default_factory=list)
    tails: dict[tuple[int, int], Rule] = field(default_factory=dict)
    tree: Tree = field(default_factory=lambda: Tree(0))


def plain(references: References) -> References:
    """Return a list of references without the counts that rules tell."""
    return tuple((form, named, 0 if form in COUNTED else count) for form, named, count in references)


def learn_waits(
    examples: Sequence[Example],
    classes: Sequence[Packed],
    conditions: Sequence[Mapping[str, Value]],
    explained: Explained,
    rng: np.random.Generator,
) -> dict[Token, Waits]:
    """Return what every token of a role waits for.

    Args:
        examples: Pieces of the role.
        classes: Tokens of all classes.
        conditions: Of all classes.
        explained: For counts.
        rng: Chooses examples where there are very many.
    """
    found: dict[Token, Waits] = defaultdict(Waits)
    places: dict[Token, dict[References, int]] = defaultdict(dict)
    chosen: dict[Token, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    counts: dict[tuple[Token, int, int], list[tuple[int, int]]] = defaultdict(list)
    for number, (at, _, tokens, first) in enumerate(examples):
        packed = classes[at]
        for token, one in zip(tokens, packed.reference[first : first + len(tokens)].tolist(), strict=True):
            full = packed.references[one]
            known = places[token]
            which = known.setdefault(plain(full), len(known))
            rows, listed = chosen[token]
            rows.append(number)
            listed.append(which)
            for place, (form, _, count) in enumerate(full):
                if form in COUNTED:
                    counts[token, which, place].append((at, count))
    for token, known in places.items():
        found[token].lists = list(known)
    for (token, which, place), seen in counts.items():
        found[token].tails[which, place] = explained.rule(*np.array(seen, np.int64).T)
    several = {token: np.array(chosen[token], np.int64) for token, known in places.items() if len(known) > 1}
    if several:
        picked = _picked(len(examples), list(several.values()), rng)
        position = np.full(len(examples), -1, np.int64)
        position[picked] = np.arange(len(picked))
        questions = Questions(
            [
                {**dict(zip(KEYS, examples[number][1], strict=True)), **conditions[examples[number][0]]}
                for number in picked.tolist()
            ]
        )
        for token, (rows, listed) in several.items():
            kept = position[rows] >= 0
            found[token].tree = questions.grow(listed[kept].tolist(), position[rows[kept]])
    return dict(found)


def _picked(many: int, tables: Sequence[Any], rng: np.random.Generator) -> Any:
    """Return the examples to learn from: all, or as many as there is time for and those of rare lists."""
    if many <= _MOST_EXAMPLES:
        return np.arange(many)
    mask = np.zeros(many, np.bool_)
    mask[rng.choice(many, _MOST_EXAMPLES, replace=False)] = True
    for rows, listed in tables:
        mask[rows[np.bincount(listed)[listed] < _RARE]] = True
    return np.flatnonzero(mask)
