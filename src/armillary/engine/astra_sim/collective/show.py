"""The chunk-flow table of a schedule: step by step, what every member sends, receives and then has."""

from __future__ import annotations

import io
import operator
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.base.text import console
from armillary.engine.astra_sim.collective.dataflow import Execution, Message, operation_done
from armillary.engine.astra_sim.collective.schedule import Schedule

Contributors = frozenset[int]
_MOST_COLUMNS = 8
_MOST_STEPS = 16
_MOST_MEMBERS = 64


@dataclass(frozen=True)
class Cell:
    """One member at one step: the messages it sends and receives, and the blocks that these brought.

    `blocks` maps a block to the members whose contribution it now sums. In the first and the last row
    it has all the blocks of the member.
    """

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    blocks: dict[int, Contributors]


def chunk_flow_table(schedule: Schedule) -> list[list[Cell]]:
    """Return one row per step and one cell per member, between a row for the start and one for the end.

    A step lasts from one delivery of everything in flight to the next, as if all messages took equally long.

    Raises:
        InputError: more than 64 members.
        RuntimeError: the schedule does not finish.
    """
    if schedule.n > _MOST_MEMBERS:
        raise InputError(f"chunk-flow table of {schedule.n} members: expected at most {_MOST_MEMBERS}")
    execution: Execution[Contributors] = Execution(
        schedule, lambda member, _block: frozenset((member,)), operator.or_
    )
    # Row 0: what every member holds before anything was sent.
    rows = [[Cell((), (), dict(held)) for held in execution.held]]
    while execution.chunk_steps or execution.deliverable:
        sent, received = execution.round()
        if sent or received:
            rows.append([_cell(execution, member, sent, received) for member in range(schedule.n)])
    if not execution.finished:
        raise RuntimeError(
            f"{schedule.algorithm} {schedule.operation} over {schedule.n} members does not finish"
        )
    rows.append([Cell((), (), dict(held)) for held in execution.held])
    return rows


def _cell(
    execution: Execution[Contributors], member: int, sent: list[Message], received: list[Message]
) -> Cell:
    held = execution.held[member]
    receives = sorted((m for m in received if m.target == member), key=lambda m: m.source)
    brought = sorted({block for m in receives for block in m.payload.blocks})
    return Cell(
        tuple(m for m in sent if m.source == member),
        tuple(receives),
        {block: held[block] for block in brought if block in held},
    )


def render(schedule: Schedule, *, width: int = 100, markup: bool = False) -> str:
    """Return the chunk-flow table of `schedule` as text.

    Up to 8 members get a column each; of more, the first few stand for all. Long schedules are
    shortened in the middle.

    Args:
        schedule: What to show.
        width: Columns of the terminal.
        markup: Colour the text with terminal escape codes.

    Raises:
        InputError: more than 64 members.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    start, *steps, end = chunk_flow_table(schedule)
    members = _columns(schedule, width)
    table = Table(
        box=box.SIMPLE_HEAD, show_lines=True, title=_title(schedule, len(steps)), title_justify="left"
    )
    table.add_column("step", justify="right")
    for member in members:
        table.add_column(f"member {member}", overflow="fold")
    table.add_row("start", *(Text(_held(schedule, start[m].blocks)) for m in members))
    for step in _shown(len(steps)):
        cells = [Text("…" if step is None else _text(schedule, steps[step][m])) for m in members]
        table.add_row("…" if step is None else str(step + 1), *cells)
    table.add_row("end", *(Text(_held(schedule, end[m].blocks)) for m in members))
    stream = io.StringIO()
    target = console(stream, width=width, force_terminal=markup, no_color=not markup)
    target.print(table)
    target.print(_legend(schedule, len(members)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _columns(schedule: Schedule, width: int) -> range:
    # 8 characters for the step column, about 16 for each member.
    fit = max(1, (width - 8) // 16)
    return range(schedule.n if schedule.n <= min(fit, _MOST_COLUMNS) else min(fit, 4))


def _shown(steps: int) -> list[int | None]:
    """Return the steps to show, with None where some are left out."""
    if steps <= _MOST_STEPS:
        return list(range(steps))
    half = _MOST_STEPS // 2
    return [*range(half), None, *range(steps - half, steps)]


def _title(schedule: Schedule, steps: int) -> str:
    done = operation_done(schedule)
    note = f" (does an {done})" if done != schedule.operation else ""
    return f"{schedule.algorithm} {schedule.operation}{note}, {schedule.n} members, {steps} step" + "s" * (
        steps > 1
    )


def _legend(schedule: Schedule, shown: int) -> str:
    n = schedule.n
    if operation_done(schedule) == "all-to-all":
        text = "b0.2: the block of member 0 for member 2."
    elif operation_done(schedule) == "all-gather":
        text = "b2: the block of member 2."
    else:
        text = f"b2: 0+1 is the sum of block 2 over members 0 and 1, Σ over all {n}; (+) adds to one's own."
    return text if shown == n else f"{text} {shown} of {n} members shown."


def _name(schedule: Schedule, block: int) -> str:
    if operation_done(schedule) == "all-to-all":
        return f"b{block // schedule.n}.{block % schedule.n}"
    return f"b{block}"


def _names(schedule: Schedule, blocks: tuple[int, ...]) -> str:
    """Return the names of `blocks`, as "all" or with runs shortened."""
    if len(blocks) == schedule.n and len(blocks) > 2 and operation_done(schedule) != "all-to-all":
        return "all"
    names = [_name(schedule, block) for block in blocks]
    return " ".join(_shortened(names, 3))


def _sum(schedule: Schedule, members: Contributors) -> str:
    """Return the contributors of a block: ``0+1+2``, a run ``3-6``, or Σ for all."""
    if len(members) == schedule.n:
        return "Σ"
    order = sorted(members)
    # Only longer runs get a dash: 0+1+2 says more than 0-2.
    if len(order) > 3 and order[-1] - order[0] == len(order) - 1:
        return f"{order[0]}-{order[-1]}"
    return "+".join(map(str, order)) if len(order) <= 4 else f"{len(order)} of {schedule.n}"


def _shortened(items: list[str], most: int) -> list[str]:
    return items if len(items) <= most else [items[0], "…", items[-1]]


def _text(schedule: Schedule, cell: Cell) -> str:
    sends = [f"{_names(schedule, m.payload.blocks)} → {m.target}" for m in cell.sends]
    receives = [
        f"{_names(schedule, m.payload.blocks)} ← {m.source}" + " (+)" * m.payload.reduce
        for m in cell.receives
    ]
    lines = _shortened(sends, 4) + _shortened(receives, 4)
    if any(message.payload.reduce for message in cell.receives):
        lines.append(_held(schedule, cell.blocks))
    return "\n".join(lines)


def _held(schedule: Schedule, held: dict[int, Contributors]) -> str:
    """Return the blocks of a member and their contributors, those with the same contributors together."""
    if operation_done(schedule) in ("all-gather", "all-to-all"):
        return _names(schedule, tuple(sorted(held)))
    groups: dict[Contributors, list[int]] = {}
    for block, members in sorted(held.items()):
        groups.setdefault(members, []).append(block)
    return "\n".join(f"{_names(schedule, tuple(b))}: {_sum(schedule, m)}" for m, b in groups.items())
