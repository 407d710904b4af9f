"""What a result states about its input: assumptions, options without effect, and whether it fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.units import format_bandwidth, format_count
from armillary.platform.collectives import CHUNK_ORDERS
from armillary.platform.kernels import Kernels
from armillary.platform.model import AstraSimSystem, Platform
from armillary.platform.network import NETWORK_MODELS

if TYPE_CHECKING:
    from armillary.engine.common.lowered import Simulated
    from armillary.trace import Trace


def assumptions(
    lowered: Simulated, platform: Platform, profile: str, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the facts for a timeline about nodes with work but no time, and about precisions that no model knows.

    ``assumptions`` has a sentence for each assumption, ``free_nodes`` is the number of such nodes that take no time,
    and ``assumed_nodes`` adds those that the roofline timed without being enabled. `about` is `Trace.about`.
    """
    # Counts are of ranks: a class counts as often as it has members.
    sizes = np.bincount(lowered.classes, minlength=len(lowered.views)).tolist()
    total: dict[str, int] = dict.fromkeys(("free", "idle", "untimed", "unmoved", "stored"), 0)
    for view, ranks in zip(lowered.views, sizes, strict=True):
        for name in total:
            total[name] += getattr(view.nodes, name, 0) * ranks
    free, idle, untimed, unmoved, stored = total.values()
    found = list(platform.topology.assumed) if platform.topology else []
    if untimed:
        found.append(f"the roofline times {_nodes(untimed)} without a recorded time")
    if stored and platform.storage and platform.storage.at:
        rate = format_bandwidth(platform.storage.bandwidth)
        found.append(
            f"{_nodes(stored)} of storage: messages share links with what they move, up to {rate} each way"
        )
    elif stored and platform.storage:
        each = format_bandwidth(platform.storage.rate(platform.npus))
        sharing = platform.storage.sharing(platform.npus)
        found.append(f"{_nodes(stored)} of storage: {sharing} NPUs use it at a time, and each has {each}")
    if unmoved:
        found.append(f"bytes of {_nodes(unmoved)} cost no time: npu.memory.bandwidth is not given")
    if free and platform.compute.replay:
        found.append(f"{_nodes(free)} with bytes and no recorded time take none")
    elif free and profile == "astra-sim":
        why = "num_ops without tensor_size" if platform.compute.model else "no duration, roofline off"
        found.append(f"{_nodes(free)} with operations or bytes take no time, as in ASTRA-sim ({why})")
    if idle:
        found.append(f"{_nodes(idle)} of CPUs with operations or bytes and no recorded time take none")
    retained, model = about.get("precision"), platform.compute.model
    if retained and model in ("gpu", "table", "systolic"):
        other = [
            f"{name} in {retained[key]}"
            for key, name, usual in (
                ("weights", "weights", retained["compute"]),
                ("cache", "keys and values", "bf16"),
            )
            if retained[key] != usual
        ]
        if other:
            found.append(f"compute model {model} takes the precision of GEMMs for {' and '.join(other)}")
    return {"assumptions": found, "free_nodes": free + idle, "assumed_nodes": free + idle + untimed}


def unused_efficiency(platform: Platform, info: dict[str, Any]) -> list[str]:
    """Return a warning where an efficiency or overhead of kernels was given and no kernel was timed by the roofline."""
    kernels, source = platform.compute.kernels, platform.source or "platform"
    if platform.compute.model or "roofline" in info or kernels == Kernels():
        return []
    if any(each.efficiency is not None or each.factor is not None for each in platform.compute.overrides):
        return []
    return [
        f"{source}: compute.efficiency and compute.kernel_overhead have no effect: every compute node takes its "
        "recorded time; compute.roofline: true times them"
    ]


def _nodes(count: int) -> str:
    return f"{format_count(count)} node{'s' * (count != 1)}"


MEMORY = "memory"
"""Key of `Trace.about` with the memory that the fullest rank needs; recorded and old traces do not have it."""


def memory_of(trace: Trace, platform: Platform) -> dict[str, Any]:
    """Return the facts about memory for a timeline: need, capacity (None: not given), fit (None: not known)."""
    needs = trace.about.get(MEMORY)
    if needs is None:
        return {}
    capacity = platform.npu.memory.capacity
    fits = needs["needed_bytes"] <= capacity if capacity else None
    return {MEMORY: {**needs, "capacity_bytes": capacity or None, "fits": fits}}


_ASTRA_SIM_ONLY = ("local_reduction_delay", "inter_dimension", "intra_dimension")
_USUAL = AstraSimSystem()


def of_other_profile(platform: Platform, profile: str) -> Iterator[str]:
    """Yield a warning for everything of `Platform.astra_sim` that was given and counts in the other profile only."""
    if profile == "astra-sim":
        return  # what that does not know is refused, see `armillary.platform.profiles`
    source, own = platform.source or "platform", platform.astra_sim
    given = [
        f"AstraSimSystem.{name}" for name in _ASTRA_SIM_ONLY if getattr(own, name) != getattr(_USUAL, name)
    ]
    if platform.dialect == "astra-sim" and platform.collectives.active_chunks > 1:
        given.append("active-chunks-per-dimension")
    for name in given:
        yield f"{source}: {name} has no effect in profile {profile}"


PROTOCOLS = {
    "packet": {"lossless": "packet", "rdma": "packet-rdma", "tcp": "packet-tcp", "credit": "packet-credit"},
    "ns3": {"lossless": "ns3", "tcp": "ns3-tcp"},
}
"""Network model -> protocol of packets -> column of the table."""
MODELS = tuple(
    column for name in NETWORK_MODELS.built_in for column in PROTOCOLS.get(name, {"": name}).values()
)
"""The columns of the table: network models of profile physical, by the protocol of their packets."""
_TITLES = {
    "packet": "packet with protocol lossless",
    "packet-rdma": "packet with protocol rdma",
    "packet-tcp": "packet with protocol tcp",
    "packet-credit": "packet with protocol credit",
    "ns3": "ns3 with protocol lossless",
    "ns3-tcp": "ns3 with protocol tcp",
}
_MESSAGES = frozenset(MODELS) - {"analytical"}


@dataclass(frozen=True)
class Option:
    """An option that has no effect somewhere.

    Attributes:
        key: Its place in a platform file.
        given: Whether a machine sets it to a value that is not the default.
        counts: The network models in which it has an effect.
        protocol: The packet protocol that it belongs to, if any.
        needs: A further requirement for an effect, in words, and whether it is met.
    """

    key: str
    given: Callable[[Platform], bool]
    counts: frozenset[str]
    protocol: str = ""
    needs: tuple[str, Callable[[dict[str, Any]], bool]] | None = None


def _of_packets(
    protocol: str, names: str, *counts: str, needs: tuple[str, Callable[[dict[str, Any]], bool]] | None = None
) -> Iterator[Option]:
    for name in names.split():
        # The default argument binds the name of this iteration.
        def given(platform: Platform, name: str = name) -> bool:
            return platform.packets.protocol == protocol and name in platform.packets.options

        yield Option(f"packets.{name}", given, frozenset(counts), protocol, needs)


def _unbounded(platform: Platform) -> bool:
    if platform.topology is None:
        return True
    from armillary.platform.topology.graph import UNBOUNDED

    return not (platform.topology.topology.buffer < UNBOUNDED).any()


def _fastest(platform: Platform) -> float:
    """Return the bandwidth of the fastest link, bytes/ns."""
    if platform.topology is None:
        return max((each.bandwidth for each in platform.dimensions), default=0.0)
    return float(platform.topology.topology.bandwidth.max(initial=0.0))


def _marks_some(options: dict[str, Any]) -> bool:
    return options.get("kmin") is not None and (options.get("kmax") or options["kmin"]) > options["kmin"]


_ULTRA_ETHERNET = ("nscc", "rccc", "nscc+rccc")


def _when_full(options: dict[str, Any]) -> str:
    usual = {"swift": "drop", **dict.fromkeys(("ndp", *_ULTRA_ETHERNET), "trim")}
    return str(options.get("full", usual.get(options.get("control", ""), "pause")))


def _spread(options: dict[str, Any]) -> str:
    usual = {"ndp": "permuted", **dict.fromkeys(_ULTRA_ETHERNET, "reps")}
    return str(options.get("spread", usual.get(options.get("control", ""), "message")))


_NEEDS_KMAX = ("kmin, and kmax above it", _marks_some)
OPTIONS = (
    Option(
        "collectives.active_chunks", lambda p: p.dialect == "native" and p.collectives.active_chunks > 0, _MESSAGES
    ),
    Option("collectives.queues", lambda p: p.dialect == "native" and p.astra_sim.queues_per_dim > 1, frozenset()),
    Option(
        "collectives.optimization",
        lambda p: p.dialect == "native" and p.source is not None and p.astra_sim.collective_optimization == "baseline",
        frozenset(),
    ),
    Option("rendezvous", lambda p: p.dialect == "native" and p.astra_sim.rendezvous, frozenset()),
    Option(
        "scheduling", lambda p: p.scheduling != "fair",
        frozenset({"analytical", "flow", "packet", "packet-credit"}),
    ),
    Option("topology.buffer", lambda p: not _unbounded(p), _MESSAGES - {"loggops", "congestion", "flow"}),
    *_of_packets("lossless", "mtu", "packet", "ns3"),
    *_of_packets("lossless", "header buffer xoff xon kmin kmax dcqcn", "packet"),
    *_of_packets("lossless", "pmax seed", "packet", needs=_NEEDS_KMAX),
    *_of_packets("lossless", "spread qps", "packet"),
    *_of_packets(
        "lossless", "flowlet_gap", "packet",
        needs=("spread flowlet", lambda options: options.get("spread") == "flowlet"),
    ),
    *_of_packets("lossless", "ugal_bias", "packet"),
    *_of_packets("tcp", "algorithm mss buffer initial_window min_rto sack", "packet-tcp", "ns3-tcp"),
    *_of_packets(
        "tcp", "mark", "packet-tcp", "ns3-tcp",
        needs=("algorithm dctcp", lambda options: options.get("algorithm") == "dctcp"),
    ),
    *_of_packets(
        "tcp", "max_rto retries header growth ack_every window handshake persistent jitter", "packet-tcp"
    ),
    *_of_packets(
        "tcp", "ack_delay quick_acks", "packet-tcp",
        needs=("ack_every above 1", lambda options: options.get("ack_every", 2) > 1),
    ),
    *_of_packets(
        "tcp", "seed", "packet-tcp", needs=("a jitter", lambda options: options.get("jitter", 1.0) > 0)
    ),
    *_of_packets(
        "rdma", "control full spread qps ugal_bias mtu header ack buffer window kmin kmax", "packet-rdma"
    ),
    *_of_packets(
        "rdma", "recovery", "packet-rdma", needs=("full drop", lambda options: _when_full(options) == "drop")
    ),
    *_of_packets(
        "rdma", "rto retries", "packet-rdma",
        needs=("full drop or trim", lambda options: _when_full(options) != "pause"),
    ),
    *_of_packets(
        "rdma", "target", "packet-rdma",
        needs=(
            "control timely, swift, nscc or nscc+rccc",
            lambda options: options.get("control") in ("timely", "swift", "nscc", "nscc+rccc"),
        ),
    ),
    *_of_packets(
        "rdma", "paths", "packet-rdma",
        needs=("spread packet, bitmap or reps", lambda options: _spread(options) in ("packet", "bitmap", "reps")),
    ),
    *_of_packets(
        "rdma", "flowlet_gap", "packet-rdma",
        needs=("spread flowlet", lambda options: options.get("spread") == "flowlet"),
    ),
    *_of_packets("rdma", "pmax", "packet-rdma", needs=_NEEDS_KMAX),
    *_of_packets(
        "rdma", "seed", "packet-rdma",
        needs=(
            "kmin, and kmax above it, or full trim",
            lambda options: _marks_some(options) or _when_full(options) == "trim",
        ),
    ),
    *_of_packets("credit", "packet flit vcs depth router_delay switching", "packet-credit"),
)  # fmt: skip
"""Options that do not count everywhere. A test runs every row: an option that counts must change a result."""


def column_of(platform: Platform, network_model: str) -> str:
    """Return the column of the table that a network model is on a machine."""
    return PROTOCOLS.get(network_model, {}).get(platform.packets.protocol, network_model)


_EMPTY = {"adaptive": "ecmp", "ugal": "minimal"}
"""Routings by queue, and which takes the same ways where nothing waits."""


def without_effect(platform: Platform, network_model: str) -> Iterator[str]:
    """Yield a warning for everything that was given and has no effect in a network model of profile physical."""
    source = f"{platform.source or 'platform'}: platform"
    model, chosen = column_of(platform, network_model), platform.network_model
    if chosen.options and chosen.name != network_model:
        yield (
            f"{source}.network_model.options has no effect in network model {network_model}; {chosen.name} uses it"
        )
    per_byte = chosen.options.get("G") if chosen.name == network_model == "loggops" else None
    if isinstance(per_byte, int | float) and per_byte * _fastest(platform) < 1 - 1e-9:
        yield (
            f"{source}.network_model.options.G of {per_byte:g} ns per byte is faster than a link "
            f"({_fastest(platform):g} bytes per ns): the lower bound and the utilisation of links do not hold for it"
        )
    if platform.packets.given and network_model not in PROTOCOLS:
        yield f"{source}.packets has no effect in network model {network_model}; packet and ns3 use it"
    for option in OPTIONS:
        if (option.protocol and network_model not in PROTOCOLS) or not option.given(platform):
            continue
        # Another package's is told all that any model is told; what it makes of it nobody knows.
        if option.counts and network_model not in NETWORK_MODELS.built_in:
            continue
        if model not in option.counts and option.key == "topology.buffer":
            yield f"{source}.topology: buffers have no end in network model {network_model}; packet knows them"
        elif model not in option.counts:
            where = [_TITLES.get(name, name) for name in MODELS if name in option.counts]
            use = (
                f"{_and(where)} use{'s' if len(where) == 1 else ''} it"
                if where
                else "profile astra-sim uses it"
            )
            yield f"{source}.{option.key} has no effect in network model {_TITLES.get(model, model)}; {use}"
        elif option.needs and not option.needs[1](platform.packets.options):
            yield f"{source}.{option.key} has no effect without {option.needs[0]}"
    yield from _of_one_chunk(platform, source)
    yield from _of_switches(platform, network_model, source)
    routing = platform.topology.routing if platform.topology is not None else ""
    if routing in _EMPTY and model not in ("packet", "packet-rdma"):
        yield f"{source}.topology.routing: '{routing}' takes the ways of an empty network, as {_EMPTY[routing]} does"
    if model in ("packet", "packet-rdma") and routing != "ugal" and "ugal_bias" in platform.packets.options:
        yield f"{source}.packets.ugal_bias has no effect without topology.routing ugal"


def _of_one_chunk(platform: Platform, source: str) -> Iterator[str]:
    own = platform.collectives
    # Schedulers of other packages may turn the only chunk round.
    if own.chunks > 1 or own.chunk_order == "baseline" or own.chunk_order not in CHUNK_ORDERS.built_in:
        return
    if len(platform.dimensions) > 1:
        yield (
            f"{source}.collectives.chunk_order {own.chunk_order} has 1 chunk to order, which keeps one dimension busy "
            "at a time; expected collectives.chunks of 2 or more (a study file has 64)"
        )


def _of_switches(platform: Platform, network_model: str, source: str) -> Iterator[str]:
    asked = {name for names in platform.collectives.algorithms.values() for name in names} & {
        "in-switch",
        "auto",
    }
    if network_model == "analytical" and asked:
        for d in platform.dimensions:
            if d.in_network and d.in_network.operations:
                yield (
                    f"{source}.network: {d.name}: in_network.operations has no effect in network model analytical; "
                    "those that move messages use it"
                )


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
