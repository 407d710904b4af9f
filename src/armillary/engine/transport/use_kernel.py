"""Bytes that links carry: in total, and over time in bins that widen during the run."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner
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
def _widen(table, net, time):
    """Make bins so wide that there is one for `time`: several become one."""
    links = table[lk.T_LINKS]
    # All at once: a pass over all bins of 100,000 links takes half a second.
    bits = 1
    while time >> (net[lk.N_BIN_BITS] + bits) >= lk.BINS:
        bits += 1
    several = 1 << min(bits, lk.BIN_BITS)
    left = lk.BINS // several
    for what in range(2):
        first = bin_bytes.at_bytes(net, 0) if what == 0 else bin_depth.at_depth(net, 0)
        # In place and forwards: bin i is written after its own bins were read.
        for i in range(left):
            for at in range(first + i * links, first + (i + 1) * links):
                found = net[at + i * (several - 1) * links]
                for other in range(1, several):
                    value = net[at + (i * (several - 1) + other) * links]
                    found = found + value if what == 0 else max(found, value)
                net[at] = found
        for at in range(first + left * links, first + lk.BINS * links):
            net[at] = 0
    net[lk.N_BIN_BITS] += bits


@inlined
def carried(table, net, link, size, begin, end):
    """Count `size` bytes on a link from `begin` to `end`, in ps."""
    uses.add_bytes(net, link, size)
    uses.add_busy(net, link, end - begin)
    # By far the most transfers stay within a bin.
    if begin >> net[lk.N_BIN_BITS] == end >> net[lk.N_BIN_BITS] < lk.BINS:
        bin_bytes.add_bytes(net, (end >> net[lk.N_BIN_BITS]) * table[lk.T_LINKS] + link, size)
    else:
        _spread(table, net, link, size, begin, end)


@inner
def _spread(table, net, link, size, begin, end):
    """Count bytes in several bins."""
    # Widening keeps the number of bins fixed; it happens O(log time) times in a run.
    if end >> net[lk.N_BIN_BITS] >= lk.BINS:
        _widen(table, net, end)
    bits = net[lk.N_BIN_BITS]
    first = begin >> bits
    last = end >> bits
    before = 0
    # What has been carried by the end of each bin: so bins that become one add up to what that would have got.
    for i in range(first, last):
        # Bytes fit 43 bits where times of a message fit 20 of a bin; else count in floating point.
        by_then = int(size * ((((i + 1) << bits) - begin) / (end - begin)))
        bin_bytes.add_bytes(net, i * table[lk.T_LINKS] + link, by_then - before)
        before = by_then
    # The last bin takes the rest, so that the sum is exact.
    bin_bytes.add_bytes(net, last * table[lk.T_LINKS] + link, size - before)


@inlined
def waiting(table, net, link, depth, now):
    """Note that `depth` bytes wait for a link."""
    uses.set_waiting(net, link, depth)
    uses.set_depth(net, link, max(uses.depth(net, link), depth))
    if now >> net[lk.N_BIN_BITS] >= lk.BINS:
        _widen(table, net, now)
    at = (now >> net[lk.N_BIN_BITS]) * table[lk.T_LINKS] + link
    bin_depth.set_depth(net, at, max(bin_depth.depth(net, at), depth))
