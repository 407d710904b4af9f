"""Topologies of switches in layers: fat tree, leaf-spine, rail-optimised, dragonfly."""

from __future__ import annotations

import numpy as np

from armillary.base.errors import InputError
from armillary.platform.limits import MOST_COUNT
from armillary.platform.topology.graph import UNBOUNDED, Topology, check_size
from armillary.platform.topology.wiring import Wiring


def fat_tree(
    k: int, bandwidth: float, latency: float, *, oversubscription: float = 1.0, buffer: int = UNBOUNDED
) -> Topology:
    """Return the k-ary fat tree of Al-Fares et al. (SIGCOMM 2008, §3): k pods, (k/2)² core switches.

    Each of the k/2 edge switches of a pod has k/2 links up and `oversubscription` times as many NPUs.

    Raises:
        InputError: k is odd, or the NPUs of an edge switch are no whole number.
    """
    half = k // 2
    if not 0 < oversubscription <= MOST_COUNT:  # also refuses NaN, which compares false
        raise InputError(
            f"fat-tree: oversubscription: got {oversubscription:g}, expected more than 0, {MOST_COUNT} or less"
        )
    below = oversubscription * half
    if k < 2 or k % 2:
        raise InputError(f"fat-tree: k: got {k}, expected an even number from 2")
    if below != int(below) or below < 1:
        raise InputError(
            f"fat-tree: oversubscription: got {oversubscription:g}, which gives {below:g} NPUs per edge switch, "
            "expected a whole number"
        )
    # Each of the k * k/2 edge switches, and as many aggregation switches, has k/2 links up.
    check_size("fat-tree", 2 * k * half * (2 * half + int(below)))
    wiring = Wiring("fat-tree", k * half * int(below), buffer)
    npu = np.arange(wiring.npus)
    edge = wiring.tier("edge", k * half)
    aggregation = wiring.tier("aggregation", k * half)
    core = wiring.tier("core", half * half)
    wiring.connect(npu, edge[npu // int(below)], "npu-edge", bandwidth, latency)
    # Every edge switch of a pod with every aggregation switch of that pod; …
    pod, i, j = np.indices((k, half, half))
    wiring.connect(edge[pod * half + i], aggregation[pod * half + j], "edge-aggregation", bandwidth, latency)
    # … and aggregation switch i of each pod with cores i * k/2 to (i + 1) * k/2 - 1 (§3, Fig. 3).
    wiring.connect(aggregation[pod * half + i], core[i * half + j], "aggregation-core", bandwidth, latency)
    of_switch = np.arange(k * half) // half
    # Pods are the parts; cores belong to none.
    block = [npu // (half * int(below)), of_switch, of_switch, np.full(half * half, -1)]
    return wiring.topology(block=np.concatenate(block))


def leaf_spine(
    leaves: int,
    spines: int,
    npus_per_leaf: int,
    bandwidth: float,
    latency: float,
    *,
    uplink: float | None = None,
    buffer: int = UNBOUNDED,
) -> Topology:
    """Return leaf switches, each linked to all spines; `uplink` is the bandwidth of those links.

    Raises:
        InputError: Several leaves have no spine.
    """
    if leaves > 1 and not spines:
        raise InputError(
            f"leaf-spine: {leaves} leaves and no spines: nothing joins them, expected spines: 1 or more"
        )
    check_size("leaf-spine", 2 * leaves * (spines + npus_per_leaf))
    wiring = Wiring("leaf-spine", leaves * npus_per_leaf, buffer)
    npu = np.arange(wiring.npus)
    leaf, spine = wiring.tier("leaf", leaves), wiring.tier("spine", spines)
    wiring.connect(npu, leaf[npu // npus_per_leaf], "npu-leaf", bandwidth, latency)
    # [:, None] broadcasts every leaf against every spine.
    wiring.connect(leaf[:, None], spine, "leaf-spine", uplink or bandwidth, latency)
    return wiring.topology(
        block=np.concatenate([npu // npus_per_leaf, np.arange(leaves), np.full(spines, -1)])
    )


def rail_optimised(
    hosts: int,
    npus_per_host: int,
    host_bandwidth: float,
    host_latency: float,
    bandwidth: float,
    latency: float,
    *,
    host_switches: int = 1,
    hosts_per_unit: int | None = None,
    spines: int = 0,
    uplink: float | None = None,
    buffer: int = UNBOUNDED,
) -> Topology:
    """Return hosts whose NPUs with the same place share a leaf switch, their rail.

    Args:
        hosts: Number of hosts.
        npus_per_host: NPUs of a host, and rails.
        host_bandwidth: Of an NPU within its host, bytes per ns, over all of the host's switches.
        host_latency: ns per link there.
        bandwidth: Of the NIC of an NPU, bytes per ns.
        latency: ns per link outside hosts.
        host_switches: Switches in a host.
        hosts_per_unit: Hosts that share leaves; None: all.
        spines: Switches above the leaves; 0: rails meet in hosts only.
        uplink: Bandwidth of each link between leaf and spine; None: as much up as down.
        buffer: Bytes at the end of a link.

    Raises:
        InputError: Units are not equal, or nothing joins them.
    """
    per_unit = hosts_per_unit or hosts
    if hosts % per_unit:
        raise InputError(f"rail-optimised: {hosts} hosts are not a multiple of hosts_per_unit {per_unit}")
    units = hosts // per_unit
    # Units are joined above the leaves only: rails do not cross them.
    if units > 1 and not spines:
        raise InputError(
            f"rail-optimised: {units} units and no spines: nothing joins them, expected spines: 1 or more"
        )
    check_size(
        "rail-optimised", 2 * hosts * npus_per_host * (host_switches + 1) + units * npus_per_host * spines * 2
    )
    wiring = Wiring("rail-optimised", hosts * npus_per_host, buffer)
    npu = np.arange(wiring.npus)
    host, rail = npu // npus_per_host, npu % npus_per_host
    # All NPUs of a host hang on each of its switches, which share their bandwidth.
    inner = wiring.tier("host switch", hosts * host_switches).reshape(hosts, host_switches)
    leaf = wiring.tier("leaf", units * npus_per_host)
    wiring.connect(npu[:, None], inner[host], "host", host_bandwidth / host_switches, host_latency)
    # Rail r of unit u has leaf u * npus_per_host + r.
    wiring.connect(npu, leaf[host // per_unit * npus_per_host + rail], "rail", bandwidth, latency)
    if spines:
        spine = wiring.tier("spine", spines)
        # per_unit links come from below; spines times this rate go up: no oversubscription.
        wiring.connect(leaf[:, None], spine, "spine", uplink or bandwidth * per_unit / spines, latency)
    block = np.full(wiring.nodes, -1)
    # Leaves and spines stay at -1: they are part of no host.
    block[: wiring.npus], block[inner] = host, np.arange(hosts)[:, None]
    return wiring.topology(host=npus_per_host, block=block)


def dragonfly(
    npus_per_router: int,
    routers: int,
    global_links: int,
    bandwidth: float,
    latency: float,
    *,
    groups: int | None = None,
    local_bandwidth: float | None = None,
    global_bandwidth: float | None = None,
    global_latency: float | None = None,
    buffer: int = UNBOUNDED,
) -> Topology:
    """Return the dragonfly of Kim et al. (ISCA 2008, §3): groups of fully connected routers, all groups linked.

    Link q of a group leads to the group q + 1 further (modulo the groups, over and over); what does not
    fill a whole turn stays unused.

    Args:
        npus_per_router: p of the paper.
        routers: Of a group: a.
        global_links: Of a router to other groups: h.
        bandwidth: Of an NPU's link, bytes per ns.
        latency: ns, except of global links if these have their own.
        groups: g; None: the most, a·h + 1.
        local_bandwidth: Between routers of a group; None: `bandwidth`.
        global_bandwidth: Between groups; None: `bandwidth`.
        global_latency: Between groups; None: `latency`.
        buffer: Bytes at the end of a link.

    Raises:
        InputError: There are more groups than the links can join.
    """
    ends = routers * global_links
    # Each group needs one link to each other group.
    count = groups or ends + 1
    if not 2 <= count <= ends + 1:
        raise InputError(
            f"dragonfly: groups: got {count}, expected 2 to {ends + 1} (routers x global_links + 1)"
        )
    # Whole turns only: a rest could not join every group equally.
    used = ends // (count - 1) * (count - 1)
    check_size("dragonfly", count * (2 * npus_per_router * routers + routers * (routers - 1) + used))
    wiring = Wiring("dragonfly", count * routers * npus_per_router, buffer)
    npu = np.arange(wiring.npus)
    router = wiring.tier("router", count * routers)
    wiring.connect(npu, router[npu // npus_per_router], "npu-router", bandwidth, latency)
    group, i, j = np.indices((count, routers, routers))
    # Local links once per pair; connect adds the way back.
    pair = i < j
    wiring.connect(
        router[(group * routers + i)[pair]],
        router[(group * routers + j)[pair]],
        "local",
        local_bandwidth or bandwidth,
        latency,
    )
    group, q = np.indices((count, used))
    turn, offset = np.divmod(q, count - 1)
    # The offset-th next group, never the own one: offset + 1 is from 1 to count - 1.
    to = (group + offset + 1) % count
    # Seen from there this group is count - 2 - offset further, by the same link rule; same turn.
    peer = turn * (count - 1) + (count - 2 - offset)
    # Both ends list the link; keep it from the lower group.
    once = group < to
    wiring.connect(
        router[(group * routers + q // global_links)[once]],
        router[(to * routers + peer // global_links)[once]],
        "global",
        global_bandwidth or bandwidth,
        latency if global_latency is None else global_latency,
    )
    return wiring.topology(
        block=np.concatenate([npu // (routers * npus_per_router), np.arange(count * routers) // routers])
    )
