"""The share of its link for which a receiver of RCCC grants credit on an oversubscribed network, as htsim has it.

Receivers pace for their own links. If the tier above carries less, packets of all of them are trimmed there. Once per
about 1.5 round trips a receiver looks at what came: the share falls by the fraction of packets that were trimmed before
the last link, and by half of what the mean fraction of marked packets exceeds 0.3; else it rises by 0.01, doubled with
each rise in a row while nothing is marked. It does not fall below 0.9 of what the tiers carry.

Periods need no events: nothing but arrivals changes what a period counts, and nothing but grants reads the share.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

mix = use("armillary.engine.transport.switch.mark_kernel").mix
option, pacers = accessors(rl.OPTION, rl.PACER)
STEP = pk.ONE // 100
AIM = pk.ONE * 3 // 10
MOST_DOUBLINGS = 7
"""2**7 steps are more than the whole link."""


@inner
def granted(table, net, pacer):
    """Return the share of its link (of ONE) for which an NPU grants credit."""
    aim = option.aim(table, table[lk.T_OPTIONS])
    return aim * (pk.ONE - pacers.cut(net, pacer)) // pk.ONE


@inner
def count(table, net, pacer, kind, mark, now):
    """A packet, or a header without payload, has come; the mark of a header: it was cut at the last link."""
    if option.least_credit(table, table[lk.T_OPTIONS]) == 0:
        return
    adapt(table, net, pacer, now)
    pacers.add_came(net, pacer, 1)
    if kind == rl.HEADER:
        pacers.add_cuts(net, pacer, 1)
        pacers.add_trims(net, pacer, 1 - mark)
    else:
        pacers.add_marks(net, pacer, mark)


@inner
def adapt(table, net, pacer, now):
    """End all periods of an NPU up to now."""
    options = table[lk.T_OPTIONS]
    least = option.least_credit(table, options)
    if least == 0:
        return
    if pacers.due(net, pacer) == 0:
        pacers.set_due(net, pacer, now + _period(table, pacer, now))
    while pacers.due(net, pacer) <= now:
        if pacers.came(net, pacer) == 0 and pacers.cut(net, pacer) == 0 and pacers.level(net, pacer) == 0:
            # Nothing changes any more until packets come.
            pacers.set_due(net, pacer, now + _period(table, pacer, now))
            return
        _end_period(net, pacer, least)
        pacers.set_due(net, pacer, pacers.due(net, pacer) + _period(table, pacer, pacers.due(net, pacer)))


@inner
def _period(table, pacer, now):
    """Return 1.5 round trips, drawn between three and five quarters of that: receivers must not act in step."""
    options = table[lk.T_OPTIONS]
    base = 3 * option.base(table, options) // 2
    drawn = mix(mix(option.seed(table, options), pacer), now)
    return base * 3 // 4 + base // 2 * (drawn & 1023) // 1024


@inner
def _end_period(net, pacer, least):
    came, marks, trims = pacers.came(net, pacer), pacers.marks(net, pacer), pacers.trims(net, pacer)
    whole = came - pacers.cuts(net, pacer)
    share = pk.ONE - pacers.cut(net, pacer)
    level = (pacers.level(net, pacer) + (marks * pk.ONE // whole if whole > 0 else 0)) // 2
    if trims > 0:
        share -= trims * pk.ONE // came
    if level > AIM:
        share = share * (2 * pk.ONE - (level - AIM)) // (2 * pk.ONE)
    if trims > 0 or level > AIM:
        pacers.set_rises(net, pacer, 0)
    else:
        share += STEP << pacers.rises(net, pacer) if marks == 0 else STEP
        pacers.set_rises(net, pacer, min(MOST_DOUBLINGS, pacers.rises(net, pacer) + 1))
    pacers.set_cut(net, pacer, pk.ONE - max(least, min(pk.ONE, share)))
    pacers.set_level(net, pacer, level)
    pacers.set_came(net, pacer, 0)
    pacers.set_marks(net, pacer, 0)
    pacers.set_trims(net, pacer, 0)
    pacers.set_cuts(net, pacer, 0)
