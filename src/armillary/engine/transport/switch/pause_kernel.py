"""Priority flow control (IEEE 802.1Qbb): a buffer that fills pauses the link that fills it.

The packets that came by a link and wait for others are in the buffer at its end, which they leave when their
transmission begins. Above XOFF a pause is sent to the tail of the link, at XON a resume; both take its latency.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push = queue_kernel.push
use_kernel = use("armillary.engine.transport.use_kernel")
link_row = use_kernel.link_row
links, pauses, ports = accessors(lk.LINK, pk.PAUSE_AT, pk.FAIR_PORT)


@inner
def hold(table, net, queue, link, size, now):
    """A packet of `size` bytes that came by a link has to wait."""
    ports.add_held(net, link, size)
    # `paused` is what was last sent, not what the tail does: it changes a latency earlier, and prevents a
    # second pause.
    if ports.held(net, link) > pauses.above(table, link) and ports.paused(net, link) == 0:
        ports.set_paused(net, link, 1)
        _tell(table, net, queue, link, pk.PAUSE, now)


@inner
def release(table, net, queue, link, size, now):
    """A packet of `size` bytes that came by a link waits no longer."""
    ports.add_held(net, link, -size)
    if ports.paused(net, link) > 0 and ports.held(net, link) <= pauses.down_to(table, link):
        ports.set_paused(net, link, 0)
        _tell(table, net, queue, link, pk.RESUME, now)


@inner
def _tell(table, net, queue, link, what, now):
    push(net, queue, now + links.latency(table, link_row(table, net, link)), link * lk.CODES + what)
