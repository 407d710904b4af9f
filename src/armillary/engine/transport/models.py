"""The network models that move messages, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.credit import Credit
from armillary.engine.transport.flow import Flow
from armillary.engine.transport.loggops import LogGops
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.rdma import Rdma
from armillary.engine.transport.switch.hops import Ways
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.platform.model import Packets, Platform
from armillary.platform.network import NETWORK_MODELS


def transport_of(network_model: str, platform: Platform) -> Transport:
    """Return the transport of a network model on a platform.

    Raises:
        InputError: there is none of that name, it cannot be loaded, or what the platform says of packets does not fit.
    """
    if network_model == LogGops.name:
        return _loggops(platform)
    if network_model not in _BUILT_IN:
        # Imported here: only runs with a model of another package need it.
        from armillary.engine.transport.network_model import NetworkModel
        from armillary.engine.transport.python import PythonTransport

        chosen = platform.network_model
        model = NETWORK_MODELS.load_class(network_model, {}, NetworkModel)
        # Options belong to the model that the study names, not to one chosen instead on the command line.
        options = chosen.options if chosen.name == network_model else {}
        return PythonTransport(model, network_model, options, chosen.folder, chosen.source)
    try:
        return _BUILT_IN[network_model](platform.packets)
    except InputError as error:
        source = platform.packets.source
        raise InputError(f"{source}: {error}" if source else str(error)) from None


def _loggops(platform: Platform) -> Transport:
    chosen = platform.network_model
    options = chosen.options if chosen.name == LogGops.name else {}
    names = [each.name for each in fields(LogGops)]
    try:
        for name in options:
            if name not in names:
                raise InputError(
                    f"loggops: no option '{name}', expected {one_of(names)}{nearest(name, names)}"
                )
        return LogGops(**options)
    except InputError as error:
        raise InputError(f"{chosen.source}: {error}" if chosen.source else str(error)) from None


def _packets(packets: Packets) -> Transport:
    options: dict[str, Any] = dict(packets.options)
    if packets.protocol == "credit":
        return Credit(**options)
    if packets.protocol == "tcp":
        return Tcp(**options)
    # What senders of rdma choose paths by is an option of their own.
    own = {"spread"} if packets.protocol == "rdma" else set()
    names = {each.name for each in fields(Ways)} - own
    ways = Ways(**{name: options.pop(name) for name in sorted(names & options.keys())})
    if packets.protocol == "rdma":
        return Rdma(**options, ways=ways)
    control = Dcqcn() if options.pop("dcqcn", False) else None
    return Packet(**options, dcqcn=control, ways=ways)


def _reference(packets: Packets) -> Transport:
    """Return ns-3 with the protocol that is nearest to ours: paced UDP, or TCP."""
    # cppyy and ns-3 are optional.
    from armillary.engine.transport.ns3.transport import Ns3

    options = packets.options
    if packets.protocol == "tcp":
        algorithm = options.get("algorithm", "cubic")
        return Ns3(
            "reno" if algorithm == "newreno" else algorithm,
            segment=options.get("mss", 1448),
            window=options.get("initial_window", 10),
            # ms to ns.
            min_rto=round(options.get("min_rto", 200.0) * 1e6),
            sack=options.get("sack", True),
            mark=options.get("mark", 97_500) if algorithm == "dctcp" else 0,
            buffer=options.get("buffer", 256 << 10),
        )
    if packets.protocol in ("credit", "rdma"):
        what = "network of credits" if packets.protocol == "credit" else "RDMA in its wheel"
        raise InputError(f"ns-3 has no {what}; expected protocol lossless (sent as UDP) or tcp")
    return Ns3("udp", segment=options.get("mtu", 4096))


_BUILT_IN: dict[str, Callable[[Packets], Transport]] = {
    "congestion": lambda packets: Congestion(),
    "flow": lambda packets: Flow(),
    "packet": _packets,
    "ns3": _reference,
}
