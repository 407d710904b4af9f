"""The transport that the variant of this module names."""

from __future__ import annotations

from armillary.base.jit import in_variant, use

if in_variant("congestion"):
    mover = use("armillary.engine.transport.fifo_kernel")
elif in_variant("flow"):
    mover = use("armillary.engine.transport.flow_kernel")
elif in_variant("ns3"):
    mover = use("armillary.engine.transport.ns3.ns3_kernel")
elif in_variant("python"):
    mover = use("armillary.engine.transport.python_kernel")
elif in_variant("packet"):
    mover = use("armillary.engine.transport.packet_kernel")
elif in_variant("tcp"):
    mover = use("armillary.engine.transport.tcp_kernel")
elif in_variant("credit"):
    mover = use("armillary.engine.transport.credit_kernel")
inject, advance, change = mover.inject, mover.advance, mover.change
