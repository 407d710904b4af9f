"""The chunk-flow table of a collective in a switch: round by round, what goes up, what is added and what comes down."""

from __future__ import annotations

import io

from armillary.base.errors import InputError
from armillary.base.terminal import console
from armillary.collective import blocks as data
from armillary.collective.algorithms import rounds_for
from armillary.collective.rounds import Rounds

Contributors = frozenset[int]
Held = list[dict[int, Contributors]]
_MOST_MEMBERS = 64
_MOST_COLUMNS = 6


def flow(rounds: Rounds) -> list[tuple[list[tuple[int, int, tuple[int, ...], bool]], Held]]:
    """Move sets of contributors along a schedule with switches.

    Returns:
        For every round (source, target, blocks, whether added) of its messages, and what every member, and behind
        them every switch, then holds.
    """
    held: Held = [
        {block: frozenset((member,)) for block in data.start(rounds, member)} for member in range(rounds.n)
    ]
    held += [{} for _ in range(rounds.switches)]
    result = []
    for part, carried in zip(rounds.expanded(), data.blocks(rounds), strict=True):
        before, messages = [dict(state) for state in held], []
        columns = part.source.tolist(), part.target.tolist(), part.reduce.tolist()
        for source, target, reduce, blocks in zip(*columns, carried, strict=True):
            messages.append((source, target, blocks, reduce))
            for block in blocks:
                own = held[target].get(block, frozenset()) if reduce else frozenset()
                held[target][block] = own | before[source][block]
        result.append((messages, [dict(state) for state in held]))
    return result


def render(operation: str, n: int, segments: int, *, width: int = 100) -> str:
    """Return the chunk-flow table of `operation` among `n` members at one switch as text.

    Raises:
        InputError: in-switch has no such operation, or there are more than 64 members.
    """
    from rich import box
    from rich.table import Table

    rounds = rounds_for("in-switch", operation, n, chunks=segments)
    if n > _MOST_MEMBERS:
        raise InputError(f"chunk-flow table of {n} members: expected at most {_MOST_MEMBERS}")
    steps = flow(rounds)
    members = range(n if n <= min(_MOST_COLUMNS, max(1, (width - 24) // 16)) else 2)
    title = (
        f"in-switch {operation}, {n} members, {segments} segment{'s' * (segments > 1)}, {len(steps)} steps"
    )
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, title=title, title_justify="left")
    for heading in ("step", *(f"member {m}" for m in members), "switch"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "step" else "left")
    for number, (messages, held) in enumerate(steps):
        cells = []
        for node in (*members, n):
            lines = []
            sent = {blocks: target for source, target, blocks, _ in messages if source == node}
            if node < n:
                lines += [f"{_names(blocks)} → switch" for blocks in sent]
            elif sent:
                lines.append("each its own ↓" if len(sent) > 1 else f"{_names(next(iter(sent)))} → all")
            came = [(blocks, reduce) for _, target, blocks, reduce in messages if target == node]
            if came:
                what = sorted({block for blocks, _ in came for block in blocks})
                lines.append(f"{_names(tuple(what))} ←" + " (+)" * came[0][1])
                lines += _sums(rounds, {block: held[node][block] for block in what})
            cells.append("\n".join(lines))
        table.add_row(str(number + 1), *cells)
    stream = io.StringIO()
    target = console(stream, width=width)
    target.print(table)
    target.print(_legend(rounds, len(members)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _legend(rounds: Rounds, shown: int) -> str:
    text = (
        f"b2: block 2 of {data.parts(rounds)}; Σ: the sum over all {rounds.n}; (+) is added to what is there."
    )
    if rounds.operation == "all-gather":
        text = f"b2: block 2; member i brings those from i · {rounds.chunks} on."
    return text if shown == rounds.n else f"{text} {shown} of {rounds.n} members shown."


def _names(blocks: tuple[int, ...]) -> str:
    """Return the names of blocks, runs shortened."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return " ".join(f"b{run[0]}" if len(run) == 1 else f"b{run[0]}-{run[-1]}" for run in runs)


def _sums(rounds: Rounds, held: dict[int, Contributors]) -> list[str]:
    if rounds.operation == "all-gather":
        return []
    groups: dict[Contributors, list[int]] = {}
    for block, members in held.items():
        groups.setdefault(members, []).append(block)
    shown = [
        f"{_names(tuple(blocks))}: {'Σ' if len(members) == rounds.n else _sum(members)}"
        for members, blocks in groups.items()
    ]
    return shown if len(shown) <= 4 else [shown[0], "…", shown[-1]]


def _sum(members: Contributors) -> str:
    order = sorted(members)
    return "+".join(map(str, order)) if len(order) <= 4 else f"{len(order)} of them"
