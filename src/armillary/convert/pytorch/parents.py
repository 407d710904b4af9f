"""Parents of host nodes, where the times of Kineto contradict them."""

from __future__ import annotations

from armillary.convert.pytorch.communication import ASYNCHRONOUS
from armillary.convert.pytorch.link import Linked


def mend_parents(linked: Linked) -> None:
    """Move nodes up that began after their parent had ended, or that a backend's thread seems to be around.

    While such a thread (gloo) records, PyTorch now and then takes its annotation, or the operator before, for the
    operator around.
    """
    nodes, ops = linked.host.nodes, linked.device.ops
    event = {node.id: ops[op] for node, op in zip(nodes, linked.op_of, strict=True) if op >= 0}
    parent: dict[int, int] = {}
    for node in nodes:  # parents stand before their children
        own, above = event.get(node.id), event.get(node.parent)
        while own and above and node.parent in parent:
            ended = above.tid == own.tid and above.end < own.start
            elsewhere = above.tid != own.tid and above.is_annotation and above.name.startswith(ASYNCHRONOUS)
            if (
                not (ended or elsewhere) or parent[node.parent] >= node.parent
            ):  # a damaged trace may go in circles
                break
            node.parent = parent[node.parent]
            above = event.get(node.parent)
        parent[node.id] = node.parent
