"""What communication kernels do that no call explains: by what launched them, and by others of their name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from armillary.convert.pytorch.communication import RECV, SEND, Communication, of_operator
from armillary.convert.pytorch.communication_kernels import UNSAID, names_its_kind
from armillary.convert.pytorch.host import HostTrace
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import Step


def describe_kernels(steps: Sequence[Step], host: HostTrace) -> None:
    """Complete the communications that only a kernel tells of.

    Bytes are those of the operator that launched it, if that is a collective by its name. Where the name leaves the
    kind open, as NCCL's SendRecv and RCCL's generic kernels do, it is that of most calls with a kernel of this name.
    """
    kinds: dict[str, Counter[str]] = {}
    alone: list[tuple[Step, Communication]] = []
    for step, comm in _of_kernels(steps):
        if comm.node >= 0 or comm.sized:
            kinds.setdefault(step.name, Counter())[comm.kind] += 1
        else:
            alone.append((step, comm))
    for step, comm in alone:
        found = next((made for at in _around(step.item) if (made := of_operator(at, host, step.name))), None)
        if found is not None:
            comm.kind, comm.size, comm.sized, comm.path = found.kind, found.size, True, found.path
        elif not names_its_kind(step.name) and step.name in kinds:
            comm.kind = kinds[step.name].most_common(1)[0][0]
        if comm.kind == UNSAID:
            comm.kind = "ALL_TO_ALL"
        if comm.kind in (SEND, RECV) and comm.peer is None:
            comm.kind = "ALL_TO_ALL"  # a message without its other end cannot be told
        if comm.kind == "BARRIER":
            comm.sized = True


def _of_kernels(steps: Sequence[Step]) -> Iterator[tuple[Step, Communication]]:
    for step in steps:
        if step.kind == "comm" and isinstance(step.source, Communication):
            yield step, step.source


def _around(item: Item | None) -> Iterator[int]:
    """Give the host nodes that a kernel was launched in, innermost first."""
    while item is not None:
        if item.host >= 0:
            yield item.host
        item = item.above
