"""An MSCCL++ plan as execution traces: what is written remotely is a message, what is awaited a dependency.

What costs what:

* A put or a store is a message of its bytes; one in packets (LL) of twice the bytes, as half of a packet are flags.
  Stores are posted: the thread block goes on, and messages of a GPU share its links.
* A signal is a message of 8 bytes that leaves when the stores before it are through (the fence), so that a step of
  protocol Simple takes two latencies, and one of LL one.
* A read of remote memory is a request of 8 bytes and a message back.
* A local copy, reduction or unpacking passes through memory: all it reads, and what it writes.
* A semaphore or a barrier between thread blocks takes `sync`.
"""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.collective.mscclpp_plan import SUMS, ExecutionPlan, Op, Ref, Span
from armillary.collective.mscclpp_run import Block, Cell, Runner
from armillary.trace import Graph, GraphBuilder

WORD = 8
"""Bytes of a signal and of a request."""
Known = tuple[int, ...]
"""Nodes of the GPU that is told."""


def plan_graphs(
    plan: ExecutionPlan, size: int, memory_bandwidth: float = 2000.0, sync: float = 0.0
) -> list[Graph]:
    """Return the execution trace of every GPU.

    Args:
        plan: The plan.
        size: Bytes of the collective, as in ``comm_size``.
        memory_bandwidth: Bytes per ns at which a thread block's copies and sums pass through memory.
        sync: ns of a barrier or semaphore between thread blocks of a GPU.

    Raises:
        InputError: A chunk would have no bytes, the plan never ends, or a number is not positive.
    """
    if size // plan.alignment < plan.cut:
        raise InputError(
            f"{plan.document.name}: {size} bytes in {plan.cut} chunks of whole {plan.alignment} bytes, expected at "
            f"least {plan.cut * plan.alignment} bytes"
        )
    if memory_bandwidth <= 0:
        raise InputError(f"{plan.document.name}: memory bandwidth {memory_bandwidth}, expected more than 0")
    run = _Nodes(plan, size, memory_bandwidth, sync)
    run.run()
    return [builder.graph(f"{plan.document.name}: gpu {gpu}") for gpu, builder in enumerate(run.builders)]


class _Nodes(Runner[Known]):
    def __init__(self, plan: ExecutionPlan, size: int, memory_bandwidth: float, sync: float) -> None:
        super().__init__(plan)
        self.size, self.rate, self.sync = size, memory_bandwidth, sync
        self.builders = [GraphBuilder(rank=gpu) for gpu in range(plan.n)]
        self._after: dict[Block, Known] = {}
        # Stores on their way, by thread block: (node that sends, peer, node there that receives).
        self._posted: dict[Block, list[tuple[int, int, int]]] = {}
        # Packets: the node of their owner that has them.
        self._packets: dict[Cell, int] = {}
        self._tags = 0

    def data(self, block: Block, op: Op) -> bool:
        gpu = block[0]
        builder, after = self.builders[gpu], self._after.get(block, ())
        waits: list[int] = []
        for span in op.sources:
            if span.packet:
                cells = self.cells(span, op)
                if not all(cell in self._packets for cell in cells):
                    return False
                waits += [self._packets[cell] for cell in cells]
        after = tuple(dict.fromkeys((*after, *waits)))
        far = [span for span in op.sources if span.gpu != gpu]
        read = [self._fetched(block, op, span, after) for span in far]
        after = (*after, *read) if read else after
        local = [span for span in op.targets if span.gpu == gpu]
        sums, moved = op.name in SUMS, self._bytes(op.sources[0], op)
        if (sums or local) and op.name != "get":
            # A sum for remote targets only is made in registers: it reads, too.
            passes = len(op.sources) + len(local) if sums else 2 * len(local)
            amount = passes * moved
            node = builder.compute(
                self._name(op, block), flops=moved // 4 if sums else 0, bytes=amount, after=list(after)
            )
            self._lasts(builder, amount / self.rate)
            after = (node,)
        for span in local:
            if span.packet:
                self._packets.update(dict.fromkeys(self.cells(span, op), after[-1]))
        for span in op.targets:
            if span.gpu != gpu:
                self._stored(block, op, span, after)
        # What is posted is waited for by signals and flushes only.
        self._after[block] = after
        return True

    def _bytes(self, span: Span, op: Op) -> int:
        number, groups = op.part
        whole = self.plan.bytes_of(span, self.size)
        return max(whole * (number + 1) // groups - whole * number // groups, 1)

    def _name(self, op: Op, block: Block) -> str:
        return f"{op.name} of thread block {block[1]}"

    def _lasts(self, builder: GraphBuilder, ns: float) -> None:
        # Whole µs in the field that others read; the exact time beside it.
        builder.nodes[-1].attrs.append(("duration_ns", "int64", max(round(ns), 1)))

    def _message(
        self, source: int, target: int, size: int, after: Known, waits: Known, name: str
    ) -> tuple[int, int]:
        self._tags += 1
        sent = self.builders[source].send(target, size, self._tags, name=name, after=list(after))
        got = self.builders[target].recv(source, size, self._tags, name=name, after=list(waits))
        return sent, got

    def _fetched(self, block: Block, op: Op, span: Span, after: Known) -> int:
        """Return the node at which a remote read is through."""
        gpu, name = block[0], self._name(op, block)
        _, asked = self._message(gpu, span.gpu, WORD, after, (), f"request of {name}")
        _, got = self._message(span.gpu, gpu, self._bytes(span, op), (asked,), (), name)
        return got

    def _stored(self, block: Block, op: Op, span: Span, after: Known) -> None:
        amount = self._bytes(span, op) * (2 if span.packet else 1)
        sent, got = self._message(block[0], span.gpu, amount, after, (), self._name(op, block))
        self._posted.setdefault(block, []).append((sent, span.gpu, got))
        if span.packet:
            self._packets.update(dict.fromkeys(self.cells(span, op), got))

    def leave(self, block: Block) -> Known:
        return self._synced(block, self._after.get(block, ()))

    def signal(self, block: Block, channel: Ref, op: Op) -> Known:
        after, posted = self._after.get(block, ()), self._posted.get(block, [])
        there: Known = ()
        if op.name != "rlxsignal":
            # The fence: what was stored before is seen before the signal.
            after = (*after, *(sent for sent, _, _ in posted))
            there = tuple(got for _, peer, got in posted if peer == channel.peer)
        _, got = self._message(block[0], channel.peer, WORD, after, (), f"signal of thread block {block[1]}")
        return (got, *there)

    def join(self, block: Block, known: list[Known]) -> None:
        nodes = (*self._after.get(block, ()), *(node for each in known for node in each))
        self._after[block] = tuple(dict.fromkeys(nodes))

    def flush(self, block: Block) -> None:
        posted = self._posted.pop(block, [])
        self._after[block] = tuple(
            dict.fromkeys((*self._after.get(block, ()), *(sent for sent, _, _ in posted)))
        )

    def _synced(self, block: Block, after: Known) -> Known:
        if self.sync <= 0:
            return after
        builder = self.builders[block[0]]
        node = builder.compute(f"sync of thread block {block[1]}", after=list(after))
        self._lasts(builder, self.sync)
        self._after[block] = (node,)
        return (node,)
