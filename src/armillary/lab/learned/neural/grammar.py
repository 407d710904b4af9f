"""Programs of ranks as token sequences, and the tokens that may follow each prefix.

A program is ``<block> roles … <step> blocks … <end>``; a symbol carries a count, and ``( … )`` is a loop of several
runs whose count stands at the opening parenthesis. Blocks are numbered in the order in which the step mentions them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from armillary.lab.learned.skeletons import Block, Skeleton, Skeletons, sequence_of

BLOCK, STEP, END, OPEN, CLOSE = "<block>", "<step>", "<end>", "(", ")"
MARKS = ("<none>", "<program>", "<piece>", BLOCK, STEP, END, OPEN, CLOSE)
LONGEST = 8
"""Most symbols of a loop, as in `motifs.compress`."""
Written = tuple[str, int]
"""A token and its count; -1: it has none, or it is not known because the loop is not there."""


def block_name(at: int) -> str:
    """Return the token of the block with this number."""
    return f"<{at}>"


def write(skeleton: Skeleton, skeletons: Skeletons) -> list[Written]:
    """Return the tokens of a program; loops that mention blocks which the program lacks are left out."""
    step = skeletons.steps[skeleton.step]
    places = list(_placed(step, skeleton.times))
    # A shared template may have loops of blocks that this sequence runs 0 times and never defines.
    kept = [each for each in places if all(symbol in skeleton.blocks for symbol, _ in each[1])]
    # Numbered by first use, so that the same program always has the same tokens.
    order: dict[Block, str] = {}
    for _, runs in kept:
        for symbol, _ in runs:
            order.setdefault(symbol, block_name(len(order)))  # type: ignore[arg-type]
    found: list[Written] = []
    for block in order:
        found.append((BLOCK, -1))
        found += _loops(_placed(skeletons.blocks[block[0]], skeleton.blocks[block]))
    found.append((STEP, -1))
    found += _loops(
        (times, [(order[symbol], count) for symbol, count in runs])  # type: ignore[index]
        for times, runs in kept
    )
    return [*found, (END, -1)]


def _placed(
    template: Sequence[Sequence[object]], counts: Sequence[int]
) -> Iterator[tuple[int, list[tuple[object, int]]]]:
    at = 0
    for symbols in template:
        many = 1 if len(symbols) == 1 else 1 + len(symbols)
        own = counts[at : at + many]
        at += many
        if len(symbols) == 1:
            yield -1, [(symbols[0], own[0])]
        else:
            yield own[0], list(zip(symbols, own[1:], strict=True))


def _loops(placed: object) -> list[Written]:
    found: list[Written] = []
    for times, runs in placed:  # type: ignore[attr-defined]
        found += runs if len(runs) == 1 else [(OPEN, times), *runs, (CLOSE, -1)]
    return found


def read(tokens: Sequence[Written]) -> list[list[str]]:
    """Return the blocks of a step in the order in which they run, each as its roles; empty ones are left out."""
    blocks: list[list[str]] = []
    sections: list[list[Written]] = []
    for token, count in tokens:
        if token in (BLOCK, STEP):
            sections.append([])
        elif token != END:
            sections[-1].append((token, count))
    for section in sections[:-1]:
        blocks.append([str(each) for each in _expanded(section)])
    order = (blocks[int(str(name)[1:-1])] for name in _expanded(sections[-1]))
    return [block for block in order if block]


def _expanded(section: Sequence[Written]) -> list[object]:
    template: list[tuple[str, ...]] = []
    counts: list[int] = []
    inside: list[str] | None = None
    for token, count in section:
        if token == OPEN:
            inside = []
            counts.append(count)
        elif token == CLOSE:
            template.append(tuple(inside or ()))
            inside = None
        else:
            counts.append(count)
            if inside is None:
                template.append((token,))
            else:
                inside.append(token)
    return sequence_of(tuple(template), counts)


@dataclass
class Grammar:
    """The tokens that may follow: those that the syntax allows, and of these the ones that followed in the corpus.

    Attributes:
        roles: Roles.
        follows: Tokens that followed each token in the corpus.
        blocks: Most blocks of a program.
        longest: Tokens of the longest program of the corpus.
    """

    roles: Sequence[str]
    follows: dict[str, set[str]] = field(default_factory=dict)
    blocks: int = 1
    longest: int = 1

    def learn(self, tokens: Sequence[Written]) -> None:
        """Add a program of the corpus."""
        names = ["<program>", *(token for token, _ in tokens)]
        for one, other in pairwise(names):
            self.follows.setdefault(one, set()).add(other)
        self.blocks = max(self.blocks, names.count(BLOCK))
        self.longest = max(self.longest, len(tokens))

    def allowed(self, tokens: Sequence[str]) -> list[str]:
        """Return the tokens that may follow these; empty: the program is complete."""
        if not tokens:
            return [BLOCK]
        if tokens[-1] == END:
            return []
        # The last open parenthesis, and the symbols after it if it is not closed; -1: no loop is open.
        loop = next((len(tokens) - 1 - at for at, each in enumerate(reversed(tokens)) if each == OPEN), -1)
        inside = len(tokens) - 1 - loop if loop >= 0 and CLOSE not in tokens[loop:] else -1
        defined = tokens.count(BLOCK)
        in_step = STEP in tokens
        symbols = [block_name(at) for at in range(defined)] if in_step else list(self.roles)
        closing: list[str] = []
        # A loop has two symbols at least (one would be a run); a section needs something in it before it ends.
        if inside >= 2:
            closing = [CLOSE]
        elif inside < 0 and tokens[-1] not in (BLOCK, STEP):
            closing = [END] if in_step else [STEP]
        # Twice the longest program of the corpus is long enough: from here on everything is closed as soon as it may.
        if closing and (len(tokens) >= 2 * self.longest or inside >= LONGEST):
            return closing
        found = [*symbols, *closing]
        if inside < 0:
            found.append(OPEN)
            if not in_step and closing and defined < self.blocks:
                found.append(BLOCK)
        seen = [each for each in found if each in self.follows.get(tokens[-1], ())]
        # Where the corpus shows nothing that fits, the syntax alone decides.
        return seen or found

    def to_json(self) -> object:
        """Return the grammar as plain JSON values, without the roles, which the model holds."""
        return [{key: sorted(each) for key, each in self.follows.items()}, self.blocks, self.longest]

    @classmethod
    def from_json(cls, found: list[object], roles: Sequence[str]) -> Grammar:
        """Return the grammar that `to_json` described."""
        follows, blocks, longest = found
        known = {*roles, *MARKS, *(block_name(at) for at in range(int(blocks)))}  # type: ignore[call-overload]
        table = {str(key): {str(each) for each in listed} for key, listed in follows.items()}  # type: ignore[attr-defined]
        if any({key, *listed} - known for key, listed in table.items()):
            raise ValueError("grammar")
        return cls(roles, table, int(blocks), int(longest))  # type: ignore[call-overload]
