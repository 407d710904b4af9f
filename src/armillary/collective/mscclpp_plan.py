"""MSCCL++ execution plans (JSON): a collective as programs of thread blocks that write into the memory of their peers.

A plan has a program for each GPU: thread blocks with operations, channels to peers, and buffers of peers that they
reach. Where MSCCL's XML pairs a send with a receive, these write or read remote memory and say so by a signal (protocol
Simple) or by a flag beside every eight bytes (packets: protocol LL). Operations of a thread block run in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath

COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
}
"""Value of ``collective`` -> operation; others are read and run, and their result is not checked."""
OTHERS = ("sendrecv", "broadcast", "custom", "test")
PUTS = ("put", "pws", "pwsf", "ppkt")
MOVES = (*PUTS, "rppkt", "get", "copy", "cpkt", "upkt")
"""Operations that move each of their sources to the destination at the same place in the list."""
SUMS = ("re", "res", "rre", "rres", "repkt", "recpkt", "respkt", "recspkt")
"""Operations that write the sum of their sources to all destinations."""
SIGNALS, WAITS = ("signal", "rlxsignal"), ("wait", "rlxwait")
SYNCS = ("nop", "flush", "barrier", "sem_acquire", "sem_release", *SIGNALS, *WAITS)
SWITCHED = ("glres", "glre", "gstore", "gstorepkt")
OPERATIONS = (*MOVES, *SUMS, *SYNCS, "pipeline")
MOST_OPS = 2_000_000
"""Operations and chunks of a plan, repetitions in pipelines included: some seconds of them."""


@dataclass(frozen=True)
class Span:
    """Chunks `first` to ``first + count - 1`` of a buffer (i, o, s) of a GPU; of a packet each has its flags."""

    gpu: int
    buffer: str
    first: int
    count: int
    packet: bool = False


@dataclass(frozen=True)
class Ref:
    """A channel: number `index` of its kind of those that GPU `gpu` has to `peer`."""

    gpu: int
    peer: int
    kind: str
    index: int


@dataclass(frozen=True)
class Op:
    """An operation of a thread block.

    Attributes:
        name: One of `OPERATIONS`, but pipeline, whose operations stand in its place.
        sources: What it reads.
        targets: What it writes.
        channels: Those it signals on or waits for.
        port: Whether a proxy moves the data, so that the thread block goes on.
        ids: Of semaphores, or of a barrier.
        blocks: How many thread blocks meet at a barrier.
        part: Which of how many equal parts of the chunks it works on (thread-block groups).
        place: Where it stands in the file.
    """

    name: str
    sources: tuple[Span, ...] = ()
    targets: tuple[Span, ...] = ()
    channels: tuple[Ref, ...] = ()
    port: bool = False
    ids: tuple[int, ...] = ()
    blocks: int = 0
    part: tuple[int, int] = (0, 1)
    place: KeyPath = ()


@dataclass(frozen=True)
class ExecutionPlan:
    """A plan.

    Attributes:
        name: Its name.
        operation: What it computes, as Chakra calls it, or the file's word for another.
        protocol: ``Simple`` or ``LL``.
        n: Number of GPUs.
        in_place: Input and output are one buffer.
        chunks: (inputs, outputs, scratch) chunks of each GPU.
        blocks: By GPU, thread block: its operations.
        semaphores: By GPU: their first values.
        alignment: Bytes to whose multiples chunks are cut.
        document: The file, for errors.
        warnings: What was read past.
        sizes: Least and most bytes for which MSCCL++ takes it.
    """

    name: str
    operation: str
    protocol: str
    n: int
    in_place: bool
    chunks: tuple[tuple[int, int, int], ...]
    blocks: tuple[tuple[tuple[Op, ...], ...], ...]
    semaphores: tuple[tuple[int, ...], ...]
    alignment: int
    document: Document = field(repr=False)
    warnings: tuple[str, ...] = ()
    sizes: tuple[int, int] = (0, 2**64 - 1)

    @property
    def cut(self) -> int:
        """Number of chunks that a collective's bytes are cut into."""
        inputs, outputs, _ = self.chunks[0]
        return inputs or outputs

    def bytes_of(self, span: Span, size: int) -> int:
        """Return the bytes of chunks of a collective of `size` bytes; the remainder is in the first chunks."""
        units = size // self.alignment
        base, spare = divmod(units, self.cut)

        def end(chunk: int) -> int:
            rounds, at = divmod(chunk, self.cut)
            return rounds * units + at * base + min(at, spare)

        return (end(span.first + span.count) - end(span.first)) * self.alignment

    def error(self, op: Op, problem: str) -> InputError:
        """Return an error about an operation."""
        return self.document.error(op.place, problem)
