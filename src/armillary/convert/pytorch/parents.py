"""Which operator called which, where PyTorch's record of it is wrong.

The observer keeps a stack of open operators for each thread. A backend with threads of its own (gloo) opens its
annotation on the thread that issued the communication, but closes it, with the topmost entry of that thread's stack,
whenever the communication is done. So an operator that runs just then leaves its own stack: what it calls next is
recorded inside the annotation, inside the operator before, or inside the operator around it. The annotation itself may
stand inside an operator that began after it, or around one that began before. The times of Kineto, which are of one
thread each, tell the true caller.
"""

from __future__ import annotations

from armillary.convert.pytorch.ancestors import Ancestors
from armillary.convert.pytorch.communication import ASYNCHRONOUS
from armillary.convert.pytorch.device import CpuOp
from armillary.convert.pytorch.link import Linked


def mend_parents(linked: Linked) -> None:
    """Move nodes out of parents that had ended or are of another thread, and into the operator that ran around them."""
    nodes, ops = linked.host.nodes, linked.device.ops
    event = {node.id: ops[op] for node, op in zip(nodes, linked.op_of, strict=True) if op >= 0}
    recorded = {node.id: node.parent for node in nodes}
    around = _around(linked)
    known = Ancestors()
    parent = known.parent
    for node in nodes:  # parents stand before their children
        own, above = event.get(node.id), event.get(node.parent)
        # One step through an annotation that stands inside a later operator, or after what it is recorded around.
        if own and above and _elsewhere(own, above) and recorded[node.parent] < node.id:
            node.parent = recorded[node.parent]
            above = event.get(node.parent)
        while own and above and node.parent in parent:
            if (far := known.above(node.parent, own.tid, own.start)) != node.parent:
                node.parent, above = far, event.get(far)
                continue
            ended = above.tid == own.tid and above.end < own.start
            # A damaged trace may go in circles.
            if not (ended or _elsewhere(own, above)) or parent[node.parent] >= node.parent:
                break
            node.parent = parent[node.parent]
            above = event.get(node.parent)
        inner = around.get(node.id, node.parent)
        # Only downwards: of times in whole microseconds, those of a short caller may not reach around its callee.
        if inner < node.id and known.is_inside(inner, node.parent):
            node.parent = inner
        known.add(node.id, node.parent, own)


def _elsewhere(own: CpuOp, above: CpuOp) -> bool:
    """Whether an event is recorded inside the annotation of another thread."""
    return above.tid != own.tid and _is_of_worker(above)


def _is_of_worker(op: CpuOp) -> bool:
    """Whether an event is the annotation of a backend's thread."""
    return op.is_annotation and op.name.startswith(ASYNCHRONOUS)


def _around(linked: Linked) -> dict[int, int]:
    """Return for every node with an event the node during which it began on the same thread, the innermost."""
    threads: dict[int, list[tuple[int, int, int, int]]] = {}
    for at, (node, op) in enumerate(zip(linked.host.nodes, linked.op_of, strict=True)):
        if op >= 0 and not _is_of_worker(event := linked.device.ops[op]):
            threads.setdefault(event.tid, []).append((event.start, -event.end, at, node.id))
    found: dict[int, int] = {}
    for run in threads.values():
        # Of two that start and end together, the first recorded is the outer one.
        run.sort()
        stack: list[tuple[int, int]] = []
        for start, end, _, ident in run:
            # One that ends when the next begins has ended: whole microseconds are rounded down.
            while stack and stack[-1][0] <= start:
                stack.pop()
            if stack:
                found[ident] = stack[-1][1]
            stack.append((-end, ident))
    return found
