"""Explain why a run cannot finish: who waits for what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.errors import InputError, StuckError
from armillary.engine.common import layout as lk
from armillary.engine.common.items import View
from armillary.engine.common.lowered import Run, Simulated

ROWS_SHOWN = 20
_HEAD = ("rank", "node", "name", "state", "waits for")
_WIDEST = 40


def format_stuck(rows: Sequence[tuple[int, int, str, str, str]]) -> str:
    """Return a plain table of (rank, node id, node name, state, waits for), in the order given.

    At most `ROWS_SHOWN` rows are shown, then how many more there are; long names lose their middle.
    """
    cells = [_HEAD]
    for rank, node, name, state, waits_for in rows[:ROWS_SHOWN]:
        cells.append((str(rank), str(node), _shorten(name), state, waits_for))
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    lines = []
    for row in cells:
        numbers = [cell.rjust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        words = [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(numbers + words).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(rows) > ROWS_SHOWN:
        lines.append(f"… and {len(rows) - ROWS_SHOWN:,} more")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    """Return `text` on one line, in at most `_WIDEST` characters."""
    text = " ".join(text.split())
    if len(text) <= _WIDEST:
        return text
    half = (_WIDEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


_HINT = "\nmore active chunks per dimension, more queues per dimension or another algorithm may avoid this deadlock"
SHOWN = 200
"""Nodes that are explained at most; the table shows fewer."""


def check_finished(lowered: Simulated, run: Run) -> None:
    """Raise if a rank has not run all its nodes.

    Raises:
        InputError: time does not fit the ticks.
        StuckError: a table of who waits for what, or the two collectives that do not match.
    """
    layout = lowered.layout
    # Kernels cannot raise: they note a status and two items, and this turns them into an error.
    if run.scalar(layout.V_STATUS) == layout.MISMATCH:
        raise StuckError(_mismatch(lowered, run.scalar(layout.V_A), run.scalar(layout.V_B)))
    if run.scalar(layout.V_STATUS) == layout.TOO_LONG:
        raise InputError(
            f"the simulation takes more than {layout.LAST_TICK:.3g} ns, with messages waiting for links; "
            "expected less: ticks are int64"
        )
    left = run.table("LEFT")
    if not left.any():
        return
    rows = []
    for cls in np.flatnonzero(left).tolist():
        rows += _waiting(lowered, run, cls)
        if len(rows) >= SHOWN:
            break
    # Of ranks, not of classes: a class may stand for thousands.
    stuck = int((left[lowered.classes] > 0).sum())
    # The hint is about chunks held in queues. Where messages move, `explain` knows more.
    held = lowered.holds == Simulated.holds and any(row[-1].startswith("chunks held") for row in rows)
    raise StuckError(
        f"the simulation cannot finish: {stuck} of {len(lowered.classes)} ranks wait for something that never "
        f"happens\n{format_stuck(rows)}" + (_HINT if held else lowered.explain(run))
    )


def _mismatch(lowered: Simulated, one: int, other: int) -> str:
    texts = []
    for item in (one, other):
        cls = int(lowered.items[item, lowered.layout.I_RANK])
        position = int(lowered.item_position[item])
        view = lowered.views[cls]
        call = view.calls[int(view.call[item - _first_item(lowered, cls)])]
        node = view.nodes.graph.node(position)
        rank = int(lowered.representatives[cls])
        texts.append(f"rank {rank} runs {call.operation} of {call.size} bytes ({node})")
    return (
        f"mismatched collectives: {texts[0]} while {texts[1]} on the same group; expected every member of a group "
        "to run the same collectives in the same order"
    )


def _first_item(lowered: Simulated, cls: int) -> int:
    return int(lowered.tables["RANKS"][cls * lowered.layout.R_COLUMNS + lowered.layout.R_ITEMS])


def _waiting(lowered: Simulated, run: Run, cls: int) -> list[tuple[int, int, str, str, str]]:
    """Rows (rank, node id, node name, state, waits for) of one class: its running nodes, else blocked ones."""
    row = lowered.tables["RANKS"][cls * lowered.layout.R_COLUMNS : (cls + 1) * lowered.layout.R_COLUMNS]
    part = slice(
        int(row[lowered.layout.R_STATE]), int(row[lowered.layout.R_STATE] + row[lowered.layout.R_COUNT])
    )
    start, end = run.table("NODE_START")[part], run.table("NODE_END")[part]
    view = lowered.views[cls]
    graph, order = view.nodes.graph, view.nodes.order
    rank = int(lowered.representatives[cls])
    rows = []
    # What runs and never ends is the cause; what never started is shown only where little runs.
    running = np.flatnonzero((start >= 0) & (end < 0))
    for node in running[:20].tolist():
        position = int(order[node])
        waits = _wait_of(lowered, run, cls, view, node)
        rows.append((rank, int(graph.ids[position]), graph.name(position), "running", waits))
    blocked = np.flatnonzero(start < 0)
    ptr, parent = graph.parents()
    done = np.zeros(graph.n_nodes, bool)
    done[order] = end >= 0
    for node in blocked[: max(0, 3 - len(rows))].tolist():
        position = int(order[node])
        missing = [p for p in parent[ptr[position] : ptr[position + 1]].tolist() if not done[p]]
        waits = f"node {int(graph.ids[missing[0]])} '{graph.name(missing[0])}'" if missing else "a busy slot"
        rows.append((rank, int(graph.ids[position]), graph.name(position), "blocked", waits))
    return rows


def _wait_of(lowered: Simulated, run: Run, cls: int, view: View, node: int) -> str:
    local = int(view.nodes.item[node])
    kind = int(view.nodes.kind[node])
    if local < 0:
        return "its own end"
    if kind in (lk.SEND, lk.RECV):
        peer, tag, size = int(view.peer[local]), int(view.tag[local]), int(view.size[local])
        verb = "send" if kind == lk.RECV else "receive from"
        return f"rank {peer} to {verb} it {size} bytes with tag {tag}"
    if kind != lk.COLLECTIVE:
        return "its memory"
    item = _first_item(lowered, cls) + local
    comm = int(lowered.items[item, lowered.layout.I_COMM])
    instance = int(run.table("ITEM_INSTANCE")[item])
    ordinals = run.table("ORDINALS")
    # A member is late if it has joined fewer collectives of the group than this one's number; -1: it joins
    # none.
    late = sorted(
        int(lowered.representatives[other])
        for other, counter in lowered.comm_ordinals[comm].items()
        if counter < 0 or int(ordinals[counter]) <= instance
    )
    call = view.calls[int(view.call[local])]
    group = f"group {call.comm}" if call.comm else "all ranks"
    if late:
        names = ", ".join(map(str, late[:6])) + (", …" if len(late) > 6 else "")
        return f"rank {names} to join {call.operation} number {instance + 1} of {group}"
    return lowered.holds.format(call.operation)
