"""Dependencies of the tokens of a role: the lists of references that occur, and a tree that chooses between them.

Each token of a role has its own tree over surroundings and conditions, whatever the variant: the dependencies of a
kernel are learned once, not for each combination of the other nodes of its layer.

Several lists may name the same tokens: the first kernel of a step waits for no earlier step, whether or not its list
names one. So an example shows a set of right lists rather than one; a tree chooses one that is right for all examples
of a leaf.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.contexts import KEYS
from armillary.lab.learned.expressions import Explained, Rule
from armillary.lab.learned.packed import Packed, References
from armillary.lab.learned.reference_kernel import COUNTED
from armillary.lab.learned.tokens import named_by
from armillary.lab.learned.tree import Questions, Tree
from armillary.lab.learned.vocabulary import Vocabulary

Token = tuple[str, int, int]
"""Name, kind and occurrence in its piece, see `vocabulary.token_keys`."""
Example = tuple[int, tuple[str, ...], Sequence[Token], int]
"""A piece: class, surroundings, tokens, and the position of the first of them in the class."""
_MOST_EXAMPLES = 4000
_RARE = 100


@dataclass
class Waits:
    """The dependencies of a token.

    Attributes:
        lists: Lists of references that occur; `COUNTED` forms have count 0.
        tails: Rules of those counts, by (list, reference).
        tree: Tree to the list.
        optional: References, as in `tails`, that may name nothing.
    """

    lists: list[References] = field(default_factory=list)
    tails: dict[tuple[int, int], Rule] = field(default_factory=dict)
    tree: Tree = field(default_factory=lambda: Tree(0))
    optional: set[tuple[int, int]] = field(default_factory=set)


def plain(references: References) -> References:
    """Return a list of references without the counts that rules give."""
    return tuple((form, named, 0 if form in COUNTED else count) for form, named, count in references)


def learn_waits(
    examples: Sequence[Example],
    classes: Sequence[Packed],
    conditions: Sequence[Mapping[str, Value]],
    explained: Explained,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> dict[Token, Waits]:
    """Return the dependencies of every token of a role.

    Args:
        examples: Pieces of the role.
        classes: Tokens of all classes.
        conditions: Conditions of all classes.
        explained: Expressions that explain counts.
        vocabulary: Vocabulary of the tokens.
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
            # Without the counts lists of different depth are the same list, and rules give the counts.
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
    # A token with one list needs no tree.
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
        lists = {token: found[token].lists for token in several}
        right = _right([examples[number] for number in picked.tolist()], classes, lists, vocabulary)
        for token, (rows, _) in several.items():
            allowed, empty = right[token]
            own, kept = found[token], position[rows]
            own.tree = questions.grow_any(allowed, np.arange(allowed.shape[1]), kept[kept >= 0])
            # A reference that names nothing in some example, where its list is right, is optional wherever it stands.
            missed = {own.lists[which][place] for which, place in zip(*np.nonzero(empty.any(0)), strict=True)}
            own.optional = {
                (which, place)
                for which, each in enumerate(own.lists)
                for place, reference in enumerate(each)
                if reference in missed
            }
    return dict(found)


def _right(
    examples: Sequence[Example],
    classes: Sequence[Packed],
    lists: Mapping[Token, Sequence[References]],
    vocabulary: Vocabulary,
) -> dict[Token, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return, by token, which lists are right, (examples, lists), and which of their references name nothing.

    The latter is (examples, lists, references). Among lists whose counts follow rules, only the example's own counts
    as right.
    """
    many = Counter(token for _, _, tokens, _ in examples for token in tokens if token in lists)
    found = {
        token: (
            np.zeros((many[token], len(known)), np.bool_),
            np.zeros((many[token], len(known), max(map(len, known))), np.bool_),
        )
        for token, known in lists.items()
    }
    row: Counter[Token] = Counter()
    asked: dict[int, list[tuple[int, Token, int]]] = defaultdict(list)
    for at, _, tokens, first in examples:
        for place, token in enumerate(tokens):
            if token in lists:
                asked[at].append((first + place, token, row[token]))
                row[token] += 1
    for at, own in asked.items():
        for (token, number), which, named in _named(sorted(own), classes[at], lists, vocabulary):
            allowed, empty = found[token]
            allowed[number, which] = True
            empty[number, which, : len(named)] = [not each for each in named]
    return found


def _named(
    asked: Sequence[tuple[int, Token, int]],
    packed: Packed,
    lists: Mapping[Token, Sequence[References]],
    vocabulary: Vocabulary,
) -> Iterator[tuple[tuple[Token, int], int, list[set[int]]]]:
    """Yield (token and number of its example, right list, tokens that each reference names) for tokens of a class."""
    tables: list[tuple[int, References]] = []
    sizes = np.zeros(len(packed), np.int64)
    for at, token, _ in asked:
        # The true list first (-1), then all candidates, as if the token had all these references: one call
        # of the kernel resolves the lists of all tokens of a class.
        full = packed.references[packed.reference[at]]
        tables += [
            (-1, full),
            *((which, each) for which, each in enumerate(lists[token]) if not _counted(each)),
        ]
        sizes[at] = sum(len(each) for _, each in tables) - sizes.sum()
    entries = np.array([entry for _, each in tables for entry in each], np.int64).reshape(-1, 3).T
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    references = ptr, *(column.copy() for column in entries)
    batch = packed.column("micro_batch")
    _, parent, ends, _ = named_by(packed.symbols, batch, references, vocabulary)  # type: ignore[arg-type]
    sets = [set(each.tolist()) for each in np.split(parent, ends[:-1])] if len(ends) else []
    first, turn = 0, iter(asked)
    true: set[int] = set()
    token, number = ("", 0, 0), -1
    for which, each in tables:
        named = sets[first : first + len(each)]
        first += len(each)
        if which < 0:
            at, token, number = next(turn)
            true = set().union(*named)
            yield (token, number), lists[token].index(plain(packed.references[packed.reference[at]])), named
        elif set().union(*named) == true:
            yield (token, number), which, named


def _counted(references: References) -> bool:
    return any(form in COUNTED for form, _, _ in references)


def _picked(many: int, tables: Sequence[Any], rng: np.random.Generator) -> Any:
    """Return the examples to learn from: all, or `_MOST_EXAMPLES` random ones and all of rare lists."""
    if many <= _MOST_EXAMPLES:
        return np.arange(many)
    mask = np.zeros(many, np.bool_)
    mask[rng.choice(many, _MOST_EXAMPLES, replace=False)] = True
    for rows, listed in tables:
        mask[rows[np.bincount(listed)[listed] < _RARE]] = True
    return np.flatnonzero(mask)
