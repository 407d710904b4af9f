"""The skeleton of a rank's program: blocks of one microbatch each, made of roles, and a step made of blocks.

A block is a template of roles with counts (layers); equal blocks of a sequence are one symbol, and the step is a
template of those symbols with counts (microbatches).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.lab.learned.motifs import Loop, Template, match, shared_templates
from armillary.lab.learned.pieces import Piece

Roles = tuple[str, ...]
Block = tuple[int, int]
"""Number of the template of a block, and its number among blocks of this template with other counts."""
Step = Template[Block]
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Skeleton:
    """A sequence as counts.

    Attributes:
        step: Index of its template of blocks.
        times: Counts of its loops, see `counts_of`; -1 inside a loop that is absent.
        blocks: Counts of the loops of each block in it.
    """

    step: int
    times: Counts
    blocks: dict[Block, Counts]


@dataclass(frozen=True)
class Skeletons:
    """The templates of a corpus."""

    blocks: list[Template[str]]
    steps: list[Step]


def blocks_of(pieces: Sequence[Piece]) -> list[tuple[int, Roles]]:
    """Return (microbatch, roles) of every block."""
    found: list[tuple[int, list[str]]] = []
    for piece in pieces:
        if not found or found[-1][0] != piece.microbatch:
            found.append((piece.microbatch, []))
        found[-1][1].append(piece.role)
    return [(batch, tuple(roles)) for batch, roles in found]


def counts_of(template: Template[object], loops: Sequence[Loop[object]]) -> Counts:
    """Return the repetitions of every loop, each followed by the counts of its runs if it has more than one."""
    counts: list[int] = []
    for symbols, loop in zip(template, loops, strict=True):
        if len(symbols) == 1:
            counts.append(loop.runs[0][1] if loop.times else 0)
        else:
            # A loop that is absent says nothing about the counts inside it: -1 keeps them out of what rules
            # are fitted to.
            counts += [loop.times, *(count if loop.times else -1 for _, count in loop.runs)]
    return tuple(counts)


def sequence_of(template: Template[str] | Step, counts: Sequence[int]) -> list[object]:
    """Return the sequence that a template gives with these counts."""
    found: list[object] = []
    at = 0
    for symbols in template:
        if len(symbols) == 1:
            found += [symbols[0]] * max(0, counts[at])
            at += 1
            continue
        # Counts come from rules and may be negative far from the corpus; they count as 0.
        inside = [
            each
            for symbol, count in zip(symbols, counts[at + 1 :], strict=False)
            for each in [symbol] * max(0, count)
        ]
        found += inside * max(0, counts[at])
        at += 1 + len(symbols)
    return found


def length_of(template: Template[str] | Step, counts: Sequence[int]) -> int:
    """Return the length of the sequence that a template gives with these counts, without building it."""
    found = at = 0
    for symbols in template:
        if len(symbols) == 1:
            found += max(0, counts[at])
            at += 1
            continue
        found += max(0, counts[at]) * sum(max(0, each) for each in counts[at + 1 : at + 1 + len(symbols)])
        at += 1 + len(symbols)
    return found


def find_skeletons(sequences: Sequence[Sequence[Piece]]) -> tuple[Skeletons, list[Skeleton]]:
    """Return the templates that the sequences of one kind of program share, and each sequence as counts."""
    cut = [blocks_of(each) for each in sequences]
    # Templates of blocks first: only with blocks as symbols can a step be seen as a sequence.
    templates = shared_templates(list(dict.fromkeys(roles for each in cut for _, roles in each)))
    known: dict[Roles, tuple[int, Counts]] = {}
    steps: list[list[Block]] = []
    details: list[dict[Block, Counts]] = []
    for each in cut:
        # Blocks are numbered by appearance within each sequence: counts differ between sequences (more
        # layers), the numbers do not, so that their steps can share a template.
        order: dict[tuple[int, Counts], int] = {}
        detail: dict[Block, Counts] = {}
        step: list[Block] = []
        for _, roles in each:
            if roles not in known:
                known[roles] = _first_match(templates, roles)
            place, counts = known[roles]
            if (place, counts) not in order:
                order[place, counts] = sum(1 for other, _ in order if other == place)
            block = (place, order[place, counts])
            detail[block] = counts
            step.append(block)
        steps.append(step)
        details.append(detail)
    shared = shared_templates(steps)
    found = []
    matched: dict[tuple[Block, ...], tuple[int, Counts]] = {}
    for step, detail in zip(steps, details, strict=True):
        key = tuple(step)
        if key not in matched:
            matched[key] = _first_match(shared, key)
        place, counts = matched[key]
        found.append(Skeleton(place, counts, detail))
    return Skeletons(templates, shared), found


def _first_match(templates: Sequence[Template], sequence: Sequence) -> tuple[int, Counts]:  # type: ignore[type-arg]
    for place, template in enumerate(templates):
        loops = match(template, sequence)
        if loops is not None:
            return place, counts_of(template, loops)
    raise AssertionError("every sequence has a template")
