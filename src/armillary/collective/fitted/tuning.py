"""Which algorithm and protocol NCCL takes: the one whose time its own cost model says is the least.

The model is that of `src/graph/tuning.cc` (NCCL 2.27 to 2.29): latencies of each algorithm and protocol on NVLink, PCIe
and the network, bandwidths as shares of the links'. It decides only what runs; how long that takes is measured
(`mechanism`). NCCL's errors of judgement are thereby ours, too: times jump where it switches too late or too early.
"""

from __future__ import annotations

from typing import NamedTuple

from armillary.collective.fitted.sheet import DataSheet

LL, LL128, SIMPLE, NVLS = "LL", "LL128", "Simple", "NVLS"
PROTOCOLS = (LL, LL128, SIMPLE)

GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""In the order of time."""

# ns of a launch, then of a hop on NVLink, PCIe and the network: tables baseLatencies and hwLatencies.
_RING = {
    LL: (6600.0, 600.0, 1000.0, 2700.0),
    LL128: (14000.0, 1900.0, 2500.0, 4000.0),
    SIMPLE: (8400.0, 3400.0, 5700.0, 14000.0),
}
_TREE = {
    LL: (6800.0, 600.0, 1000.0, 5000.0),
    LL128: (14000.0, 1250.0, 1900.0, 8500.0),
    SIMPLE: (8400.0, 4000.0, 4000.0, 14000.0),
}
_NVLS_LATENCY = 25000.0
_LL_MOST = {"volta": (39.0, 39.0, 20.4), "ampere": (87.7, 22.5, 19.0), "hopper": (141.0, 45.0, 35.0),
            "blackwell": (282.0, 90.0, 70.0)}  # fmt: skip
"""GB/s of protocol LL on 1, 2 and more nodes: table llMaxBws."""
_REACHED = 0.8
"""Share of the link that NCCL's topology has: 240 of 300 GB/s on A100, 371 of 450 on H100, 722 of 900 of B200."""
_LL_SHARE, _LL128_SHARE, _TREE_SHARE = 1 / 3, 120 / 128, 0.92
_LL_SHARE_NETWORK = 1 / 4
_HOST, _LL_SHARE_HOST = 24.0, 1 / 2
"""GB/s that it counts with for PCIe through a host, and the share of LL there: LL ends between 256 and 512 KiB on 2
cards, before 512 KiB on 4, between 0.5 and 1 MiB on 8, on L40S (PCIe 4) as on RTX PRO 6000 (PCIe 5)."""
_TREE_LL128_SHARE = 7 / 9
_NVLS_SHARE = 0.85 * 5 / 6
NVLS_FROM = 8
"""Members from which the switch reduces: 4 H100 of a node take the time of a ring (xxrjun), 8 do not."""
_NETWORK_OVERHEAD = 1000.0
"""ns that posting to the network adds to each step inside a node, three times for Simple."""


class Choice(NamedTuple):
    """What NCCL runs: `algorithm` is ring, tree or NVLS."""

    algorithm: str
    protocol: str


def ring_steps(operation: str, members: int) -> int:
    """Return the steps of a ring, one after another."""
    return (2 if operation == "all-reduce" else 1) * (members - 1)


def ring_bytes(operation: str, members: int) -> float:
    """Return the bytes that each link of a ring carries for each byte of the size."""
    return 1.0 if operation in ("broadcast", "reduce") else ring_steps(operation, members) / members


def tree_depth(nodes: int) -> int:
    """Return the hops between nodes from a leaf to the root of a binary tree: log2, rounded down."""
    return nodes.bit_length() - 1


def choose(operation: str, per_node: int, nodes: int, size: float, sheet: DataSheet, nvls: bool) -> Choice:
    """Return what NCCL runs for a collective of `size` bytes; `nvls`: whether the switch may reduce.

    Its cost model is compared, not ours.
    """
    found: dict[Choice, float] = {}
    members = per_node * nodes
    nvlink = sheet.link >= PCIE
    link = _REACHED * sheet.link if nvlink else min(sheet.link, _HOST)
    ll_share = _LL_SHARE if nvlink else _LL_SHARE_HOST
    # One NIC of a node carries the ring that passes it.
    bus = link if nodes == 1 else min(link, per_node * sheet.nic)
    # Column of the hops: NVLink, else PCIe.
    kind = 0 if nvlink else 1
    ll_most = _LL_MOST[sheet.generation][min(nodes, 3) - 1]
    steps = ring_steps(operation, members)
    across = 0 if nodes == 1 else (2 * nodes if operation == "all-reduce" else nodes - 1)
    for protocol in PROTOCOLS:
        if protocol == LL128 and not has_ll128(sheet):
            continue
        base, *hops = _RING[protocol]
        extra = 0.0 if nodes == 1 else _NETWORK_OVERHEAD * (3 if protocol == SIMPLE else 1)
        inner = max(hops[kind], extra)
        rate = {
            LL: min(ll_most, bus * (ll_share if nodes == 1 else _LL_SHARE_NETWORK)),
            LL128: bus * _LL128_SHARE,
            SIMPLE: bus,
        }
        latency = base + (steps - across) * inner + across * hops[2]
        found[Choice("ring", protocol)] = latency + size * ring_bytes(operation, members) / rate[protocol]
        if operation == "all-reduce":
            base, *hops = _TREE[protocol]
            tree = bus * _TREE_SHARE
            rate = {
                LL: min(tree / 3.8, ll_most),
                LL128: tree * (_TREE_LL128_SHARE if nodes == 1 else _LL128_SHARE),
                SIMPLE: tree,
            }
            latency = base + 2 * ((per_node - 1) * hops[kind] + tree_depth(nodes) * hops[2])
            found[Choice("tree", protocol)] = latency + 2 * size / rate[protocol]
    if nvls and operation == "all-reduce" and per_node >= NVLS_FROM and nodes == 1:
        found[Choice(NVLS, SIMPLE)] = _NVLS_LATENCY + size / (bus * _NVLS_SHARE)
    return min(found, key=found.__getitem__)


PCIE = 100.0
"""GB/s of a link below which it is PCIe: 64 of generation 5 x16, 128 of 6; NVLink began at 150."""


def has_ll128(sheet: DataSheet) -> bool:
    """Return whether LL128 is used: only over NVLink, and not on Blackwell.

    No measured time shows it within a node there; between nodes, steps on 512 GB200 and GB300 (MLPerf 5.1) are 3 % off
    without it and 12 % with it.
    """
    return sheet.link >= PCIE and sheet.generation != "blackwell"
