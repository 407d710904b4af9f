"""The events of links in a tree whose nodes have the first of the two below them (a tournament, Knuth, vol. 3, 5.2.3).

A heap of events compares two children on each level, and the processor guesses which comes first. Here a changed event
meets one other on each level, and the lower of two words takes no guess.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner
from armillary.engine.transport import layout as lk
from armillary.engine.transport.packet import unbounded_layout as ul

nodes, option = accessors(ul.NODE, ul.OPTION)


@inlined
def schedule(table, net, link, time):
    """Let the event of a link come at `time` (ps), or at the last before it that a word can tell; FOREVER: never."""
    bits = option.bits(table, table[lk.T_OPTIONS])
    word = ul.NOTHING
    if time < lk.FOREVER:
        most = (ul.NOTHING >> bits) - 1
        if time - net[ul.N_BASE] > most and net[lk.N_NOW] > net[ul.N_BASE]:
            rebase(table, net, net[lk.N_NOW])
        word = (min(time - net[ul.N_BASE], most) << bits) + link
    at = option.leaves(table, table[lk.T_OPTIONS]) + link
    nodes.set_first(net, at, word)
    while at > 1:
        word = min(word, nodes.first(net, at ^ 1))
        at >>= 1
        # Nothing changes above.
        if nodes.first(net, at) == word:
            return
        nodes.set_first(net, at, word)


@inner
def rebase(table, net, now):
    """Count times from `now` on, before which no event comes."""
    bits = option.bits(table, table[lk.T_OPTIONS])
    shift = (now - net[ul.N_BASE]) << bits
    for at in range(1, 2 * option.leaves(table, table[lk.T_OPTIONS])):
        if nodes.first(net, at) < ul.NOTHING:
            nodes.set_first(net, at, nodes.first(net, at) - shift)
    net[ul.N_BASE] = now
