"""Operations on real tensors through torch.distributed."""

from __future__ import annotations

from typing import Any

from armillary.evidence.replay.plan import Operation, Shared

FLOAT_BYTES = 4


class Network:
    """The process groups of a rank, and the two buffers that all of its operations share.

    Values do not matter, so operations that overlap may use the same memory.
    """

    def __init__(
        self, torch: Any, rank: int, shared: Shared, largest: int, device: str, *, ordered: bool
    ) -> None:
        """Make the groups; every rank makes all of them, in the same order.

        Args:
            torch: The module, with the default process group initialised.
            rank: This rank.
            shared: Groups and messages of all ranks.
            largest: Bytes of each buffer.
            device: Where they are.
            ordered: Messages have no tags: each direction of a pair gets a group of its own.
        """
        self.torch, self.distributed, self.rank = torch, torch.distributed, rank
        self.tags = {tag: number for number, tag in enumerate(shared.tags)}
        self.groups: dict[Any, Any] = {0: torch.distributed.group.WORLD}
        for number, ranks in shared.groups.items():
            self.groups[number] = torch.distributed.new_group(list(ranks))
        for pair in shared.pairs:
            # NCCL matches messages by order, not by tag: a group per direction keeps pairs apart.
            self.groups[pair] = torch.distributed.new_group(sorted(pair)) if ordered else self.groups[0]
        # uint8: views of it are other types.
        self._buffers = [torch.zeros(largest, dtype=torch.uint8, device=device) for _ in range(2)]

    def issue(self, op: Operation) -> Any:
        """Start an operation and return its ``Work``."""
        d, n, size = self.distributed, len(op.members), op.size
        if op.kind in ("send", "recv"):
            group, tag = self.groups[op.members], self.tags[op.key[3]]
            if op.kind == "send":
                # Messages of all tags share the buffers, as values do not matter.
                return d.isend(self._tensor(0, size), op.members[1], group=group, tag=tag)
            return d.irecv(self._tensor(1, size), op.members[0], group=group, tag=tag)
        # All collectives are asynchronous: their end is heard elsewhere.
        how = {"group": self.groups[op.key[1]], "async_op": True}
        if op.kind == "barrier":
            return d.barrier(**how)
        if op.kind == "all-reduce":
            return d.all_reduce(self._tensor(0, size), **how)
        if op.kind in ("broadcast", "reduce"):
            return getattr(d, op.kind)(self._tensor(0, size), op.root, **how)
        if op.kind == "all-gather":
            return d.all_gather_into_tensor(self._tensor(1, size, times=n), self._tensor(0, size), **how)
        if op.kind == "all-to-all":
            return self._all_to_all(op, how)
        # Rooted and scattering operations: the whole at one place, a part at each.
        whole = self._tensor(0, size, parts=n)
        part = self._buffers[1].view(whole.dtype)[: len(whole) // n]
        if op.kind in ("reduce-scatter", "reduce-scatter-block"):
            return d.reduce_scatter_tensor(part, whole, **how)
        # Only the root passes the list of pieces; the others pass None.
        pieces = list(whole.chunk(n)) if self.rank == op.root else None
        return getattr(d, op.kind)(part, pieces, op.root, **how)

    def _all_to_all(self, op: Operation, how: dict[str, Any]) -> Any:
        if not op.splits:
            give, take = (self._tensor(buffer, op.size, parts=len(op.members)) for buffer in (0, 1))
            return self.distributed.all_to_all_single(take, give, **how)
        give, take = (
            self._buffers[buffer][: sum(sizes)] for buffer, sizes in enumerate((op.splits, op.received))
        )
        return self.distributed.all_to_all_single(take, give, list(op.received), list(op.splits), **how)

    def _tensor(self, buffer: int, size: int, *, parts: int = 1, times: int = 1) -> Any:
        """Return `times` tensors of `size` bytes in one, each a whole number of elements in each of `parts`."""
        # float32, the type of gradients, where the size allows; else bytes, which every size allows.
        if size and size % (FLOAT_BYTES * parts) == 0:
            return self._buffers[buffer].view(self.torch.float32)[: size // FLOAT_BYTES * times]
        return self._buffers[buffer][: _rounded(size, parts) * times]


def buffer_bytes(op: Operation) -> int:
    """Return the bytes that each buffer must have for `op`."""
    n = len(op.members)
    # Rounded up to a multiple of the members.
    most = max(_rounded(op.size, n), sum(op.splits), sum(op.received))
    # A multiple of 4, so that a view as float32 is possible.
    return -(-(most * n if op.kind == "all-gather" else most) // FLOAT_BYTES) * FLOAT_BYTES


def _rounded(size: int, parts: int) -> int:
    return -(-max(size, 1) // parts) * parts
