"""Priority flow control (IEEE 802.1Qbb): a buffer that fills pauses the link that fills it.

The packets that came by a link and wait for others are in the buffer at its end, which they leave when their
transmission begins. Above XOFF its tail is told to pause, down at XON to go on; that takes the latency of the link.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push = events.push
links = use("armillary.engine.transport.use_kernel")
link_row = links.link_row
ports = use("armillary.engine.transport.port_kernel")
port_of = ports.port_of


@inner
def hold(table, net, queue, link, size, now):
    """A packet of `size` bytes that came by a link has to wait."""
    port = port_of(net, link)
    net[port + PO_HELD] += size
    if net[port + PO_HELD] > table[table[XOFF] + link] and net[port + PO_TOLD] == 0:
        net[port + PO_TOLD] = 1
        _tell(table, net, queue, link, PAUSE, now)


@inner
def release(table, net, queue, link, size, now):
    """A packet of `size` bytes that came by a link waits no longer."""
    port = port_of(net, link)
    net[port + PO_HELD] -= size
    if net[port + PO_TOLD] > 0 and net[port + PO_HELD] <= table[table[XON] + link]:
        net[port + PO_TOLD] = 0
        _tell(table, net, queue, link, RESUME, now)


@inner
def _tell(table, net, queue, link, what, now):
    push(net, queue, now + table[link_row(table, net, link) + L_LATENCY], link * CODES + what)
