"""Network model `packet` where packets choose their ways at every node: `packet_kernel`, loaded in this variant."""

from __future__ import annotations

from armillary.base.jit import use

packet_kernel = use("armillary.engine.transport.packet.packet_kernel")
inject, advance, change = packet_kernel.inject, packet_kernel.advance, packet_kernel.change
