"""Bytes that links carry: in total, and over time in bins that widen during the run."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.transport import layout as lk

bin_bytes, bin_depth, links, uses = accessors(lk.BIN_BYTES, lk.BIN_DEPTH, lk.LINK, lk.USE)


@inner
def link_row(table, net, link):
    """Return the number of a link's row in the stage that the network is in."""
    return net[lk.N_STAGE] * table[lk.T_LINKS] + link


@inner
def duration(table, row, size):
    """Return the ps that `size` bytes take on the link in `row`, rounded up."""
    return (size * links.slow(table, row) + links.fast(table, row) - 1) // links.fast(table, row)


@inner
def _widen(table, net):
    """Make bins twice as wide: two become one."""
    links = table[lk.T_LINKS]
    # In place and forwards: bin i is written after bins 2 i and 2 i + 1 were read.
    for what in range(2):
        first = bin_bytes.at_bytes(net, 0) if what == 0 else bin_depth.at_depth(net, 0)
        for i in range(lk.BINS // 2):
            for at in range(first + 2 * i * links, first + (2 * i + 1) * links):
                one, other = net[at], net[at + links]
                net[at - i * links] = one + other if what == 0 else max(one, other)
        for at in range(first + lk.BINS // 2 * links, first + lk.BINS * links):
            net[at] = 0
    net[lk.N_BIN] *= 2


@inner
def carried(table, net, link, size, begin, end):
    """Count `size` bytes on a link from `begin` to `end`, in ps."""
    uses.add_bytes(net, link, size)
    uses.add_busy(net, link, end - begin)
    # Widening keeps the number of bins fixed; it happens O(log time) times in a run.
    while end >= net[lk.N_BIN] * lk.BINS:
        _widen(table, net)
    width = net[lk.N_BIN]
    links = table[lk.T_LINKS]
    bins = bin_bytes.at_bytes(net, link)
    first = begin // width
    # By far the most transfers stay within a bin.
    last = end // width
    if first == last:
        net[bins + first * links] += size
        return
    before = 0
    # What has been carried by the end of each bin: so bins that become one add up to what that would have got.
    for i in range(first, last):
        # Bytes fit 43 bits where times of a message fit 20 of a bin; else count in floating point.
        by_then = int(size * (((i + 1) * width - begin) / (end - begin)))
        net[bins + i * links] += by_then - before
        before = by_then
    # The last bin takes the rest, so that the sum is exact.
    net[bins + last * links] += size - before


@inner
def waiting(table, net, link, depth, now):
    """Note that `depth` bytes wait for a link."""
    uses.set_waiting(net, link, depth)
    uses.set_depth(net, link, max(uses.depth(net, link), depth))
    while now >= net[lk.N_BIN] * lk.BINS:
        _widen(table, net)
    at = bin_depth.at_depth(net, now // net[lk.N_BIN] * table[lk.T_LINKS] + link)
    net[at] = max(net[at], depth)
