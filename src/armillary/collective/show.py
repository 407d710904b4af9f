"""The chunk-flow table of an algorithm: round by round, what members and switches send, receive and add up."""

from __future__ import annotations

import io

from armillary.base.errors import InputError
from armillary.base.text import console
from armillary.collective import blocks as data
from armillary.collective.algorithms import rounds_for
from armillary.collective.rounds import Blocks, Rounds

Contributors = frozenset[int]
Held = list[dict[int, Contributors]]
Message = tuple[int, int, Blocks, bool]
_REDUCING = ("all-reduce", "reduce-scatter", "reduce")
_MOST_MEMBERS = 64
_MOST_COLUMNS = 6
_MOST_STEPS = 16
_MOST_PEERS = 4


def flow(rounds: Rounds) -> list[tuple[list[Message], Held]]:
    """Move sets of contributors along a schedule.

    Returns:
        For every round (source, target, blocks, whether added) of its messages, and what every member, and behind
        them every switch, then holds.
    """
    held: Held = [
        {block: frozenset((member,)) for block in data.start(rounds, member)} for member in range(rounds.n)
    ]
    # Switches start empty; they hold sums only.
    held += [{} for _ in range(rounds.switches)]
    result = []
    for part, carried in zip(rounds.expanded(), data.blocks(rounds), strict=True):
        # All messages of a round read the state before it.
        before, messages = [dict(state) for state in held], []
        columns = part.source.tolist(), part.target.tolist(), part.reduce.tolist()
        for source, target, reduce, blocks in zip(*columns, carried, strict=True):
            messages.append((source, target, blocks, reduce))
            for block in blocks:
                own = held[target].get(block, frozenset()) if reduce else frozenset()
                held[target][block] = own | before[source][block]
        result.append((messages, [dict(state) for state in held]))
    return result


def check_members(n: int) -> None:
    """Refuse tables of more members than anybody reads.

    Raises:
        InputError: they are more than 64.
    """
    if n > _MOST_MEMBERS:
        raise InputError(f"chunk-flow table of {n} members: expected at most {_MOST_MEMBERS}")


def render(name: str, operation: str, n: int, segments: int | None = None, *, width: int = 100) -> str:
    """Return the chunk-flow table of `operation` among `n` members, of in-switch at one switch, as text.

    Args:
        name: Name of an algorithm, built in or of another package.
        operation: What it does; not a barrier, whose messages carry nothing.
        n: Number of members, up to 64; of more than fit into the width the first two stand for all.
        segments: Parts that the algorithm cuts the data into; None: as many as it does.
        width: Columns of the terminal.

    Raises:
        InputError: the algorithm cannot do it, or there are more than 64 members.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if operation == "barrier":
        raise InputError(
            "chunk-flow table of a barrier: its messages carry nothing; expected another operation"
        )
    rounds = rounds_for(name, operation, n, chunks=segments)
    check_members(n)
    steps = list(enumerate(flow(rounds), 1))
    # 24 characters for step and switch, 16 per member.
    members = range(n if n <= min(_MOST_COLUMNS, max(1, (width - 24) // 16)) else 2)
    cut = (
        f", {rounds.chunks} segment{'s' * (rounds.chunks > 1)}"
        if rounds.chunks > 1 or rounds.switches
        else ""
    )
    title = f"{rounds.algorithm} {operation}, {n} members{cut}, {len(steps)} steps"
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for heading in ("step", *(f"member {m}" for m in members), *["switch"] * bool(rounds.switches)):
        table.add_column(heading, overflow="fold", justify="right" if heading == "step" else "left")
    nodes = (*members, *[n] * bool(rounds.switches))
    for number, (messages, held) in steps:
        # Long schedules are cut in the middle.
        if len(steps) > _MOST_STEPS and number == _MOST_STEPS // 2 + 1:
            table.add_row("…", *("…" for _ in nodes))
        if _MOST_STEPS // 2 < number <= len(steps) - _MOST_STEPS // 2 and len(steps) > _MOST_STEPS:
            continue
        table.add_row(
            str(number), *(Text("\n".join(_cell(rounds, node, messages, held[node]))) for node in nodes)
        )
    stream = io.StringIO()
    target = console(stream, width=width)
    target.print(title)
    target.print(table)
    target.print(_legend(rounds, len(members)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _cell(rounds: Rounds, node: int, messages: list[Message], held: dict[int, Contributors]) -> list[str]:
    """Return what a member or switch sends and receives in a round, and what it then has of that."""
    n, lines = rounds.n, []
    sent: dict[Blocks, list[int]] = {}
    for source, target, blocks, _ in messages:
        if source == node:
            sent.setdefault(blocks, []).append(target)
    if node >= n and sent:
        lines.append("each its own ↓" if len(sent) > 1 else f"{_names(next(iter(sent)))} → all")
    elif sent:
        lines += [f"{_names(blocks)} → {_peers(targets, n)}" for blocks, targets in sent.items()]
    for added in (True, False):
        came = [
            (source, blocks)
            for source, target, blocks, reduce in messages
            if (target, reduce) == (node, added)
        ]
        if came:
            what = sorted({block for _, blocks in came for block in blocks})
            sources = [source for source, _ in came]
            # What comes from or to a switch needs no address.
            of = f" {_peers(sources, n)}" if max(sources) < n and node < n else ""
            lines.append(f"{_names(tuple(what))} ←{of}" + " (+)" * added)
            lines += _sums(rounds, {block: held[block] for block in what})
    return lines


def _peers(peers: list[int], n: int) -> str:
    if max(peers) >= n:
        return "switch"
    return " ".join(map(str, peers)) if len(peers) <= _MOST_PEERS else f"{len(peers)} others"


def _legend(rounds: Rounds, shown: int) -> str:
    text = (
        f"b2: block 2 of {data.parts(rounds)}; Σ: the sum over all {rounds.n}; (+) is added to what is there."
    )
    if rounds.operation == "all-gather":
        text = f"b2: block 2; member i brings those from i · {data.parts(rounds)} on."
    elif rounds.operation not in _REDUCING:
        text = "b2: block 2."
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
    if rounds.operation not in _REDUCING:
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
