"""What links carry: in all, and over time in bins that widen as the run goes on."""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.transport.layout_kernel import *


@inner
def link_row(table, net, link):
    """Return the address of a link's row in the stage that the network is in."""
    return table[T_LINK] + (net[N_STAGE] * table[T_LINKS] + link) * L_COLUMNS


@inner
def duration(table, row, size):
    """Return how many ps `size` bytes take on the link whose row this is, rounded up."""
    return (size * table[row + L_SLOW] + table[row + L_FAST] - 1) // table[row + L_FAST]


@inner
def _widen(table, net):
    """Make bins twice as wide: two become one."""
    links = table[T_LINKS]
    for what in range(2):
        first = net[N_BINS_BYTES + what]
        for i in range(BINS // 2):
            for at in range(first + 2 * i * links, first + (2 * i + 1) * links):
                one, other = net[at], net[at + links]
                net[at - i * links] = one + other if what == 0 else max(one, other)
        for at in range(first + BINS // 2 * links, first + BINS * links):
            net[at] = 0
    net[N_BIN] *= 2


@inner
def carried(table, net, link, size, begin, end):
    """Count `size` bytes on a link from `begin` to `end`, in ps."""
    use = net[N_USE] + link * U_COLUMNS
    net[use + U_BYTES] += size
    net[use + U_BUSY] += end - begin
    while end >= net[N_BIN] * BINS:
        _widen(table, net)
    width = net[N_BIN]
    links = table[T_LINKS]
    bins = net[N_BINS_BYTES] + link
    first = begin // width
    last = end // width
    if first == last:
        net[bins + first * links] += size
        return
    left = size
    for i in range(first, last):
        # Bytes fit 43 bits where times of a message fit 20 of a bin; else count in floating point.
        part = int(size * (((i + 1) * width - max(begin, i * width)) / (end - begin)))
        net[bins + i * links] += part
        left -= part
    net[bins + last * links] += left


@inner
def waiting(table, net, link, depth, now):
    """Note that `depth` bytes wait for a link."""
    use = net[N_USE] + link * U_COLUMNS
    net[use + U_WAITING] = depth
    net[use + U_DEPTH] = max(net[use + U_DEPTH], depth)
    while now >= net[N_BIN] * BINS:
        _widen(table, net)
    at = net[N_BINS_DEPTH] + now // net[N_BIN] * table[T_LINKS] + link
    net[at] = max(net[at], depth)
