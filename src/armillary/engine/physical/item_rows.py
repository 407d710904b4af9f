"""Fill in the rows of items that are no collectives: messages, and accesses of remote memory."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common.items import View, channel_at
from armillary.engine.physical import layout as lk
from armillary.engine.physical.channels import Channels
from armillary.platform.files.memory import fill_ns
from armillary.platform.model import Platform
from armillary.trace import NodeType

Ints = NDArray[np.int64]


def priorities(view: View, platform: Platform) -> Ints:
    """Return the place of each item under scheduling "priority": the highest comm_priority is first."""
    if platform.physical.scheduling != "priority":
        return np.zeros(len(view.job), np.int64)
    nodes = view.nodes
    priority = nodes.graph.ints("comm_priority", 0)[nodes.order[nodes.items]]
    return -np.clip(priority, -1000, 1000)


def fill_messages(view: View, items: Ints, rank: int, channels: Channels) -> None:
    """Fill in the sends and receives of a rank."""
    which, kinds, examples = view.messages()
    if which.size:
        rows = np.array([channels.of(channel_at(view, item, rank)) for item in examples.tolist()], np.int64)
        items[which, lk.I_CHANNEL : lk.I_VOLUME + 1] = rows[kinds]
        items[which, lk.I_PRIORITY] = priorities(view, channels.platform)[which]


def fill_accesses(view: View, items: Ints, rank: int, platform: Platform) -> None:
    """Fill in the accesses of a memory without stages.

    Raises:
        InputError: there is none.
    """
    nodes, memory = view.nodes, platform.memory
    which = np.flatnonzero(nodes.kind[nodes.items] == lk.MEMORY)
    if not which.size:
        return
    if memory.kind == "none":
        node = int(nodes.order[nodes.items[which[0]]])
        raise InputError(
            f"{nodes.graph.node(node)} accesses remote memory, but the machine has none; expected one"
        )
    size = view.size[which]
    transfer = -(-size // memory.bandwidth) if memory.bandwidth else np.zeros_like(size)
    node_of_rank = rank // max(memory.npus_per_node, 1)
    items[which, lk.I_SERVER] = {"per-npu": -1, "pool": 0}.get(memory.kind, node_of_rank)
    items[which, lk.I_SERVICE] = memory.latency + transfer


def fill_transfers(view: View, items: Ints, cls: int, channels: Channels) -> None:
    """Fill in the accesses of a hierarchical memory: loads are one channel, stores another."""
    nodes, platform, lines = view.nodes, channels.platform, channels.lines
    which = np.flatnonzero(nodes.kind[nodes.items] == lk.TRANSFER)
    types = nodes.graph.types[nodes.order[nodes.items[which]]]
    for store in (False, True):
        mine = which[(types == NodeType.MEM_STORE_NODE) == store]
        if not mine.size:
            continue
        used = [(port, 1, weight) for port, weight in lines.memory.used(cls, store)]
        number = channels.add(("memory", cls, store), (cls, cls), len(mine), used)
        for item in mine.tolist():
            size = int(view.size[item])
            fill = ceil(fill_ns(platform.memory, size, store, platform.npus))
            items[item, lk.I_CHANNEL : lk.I_VOLUME + 1] = number, fill, channels.scale.volume(size)
