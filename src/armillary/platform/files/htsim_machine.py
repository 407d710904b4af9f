"""Inputs of ASTRA-sim's HTSim back end: network file, topology (``.topo``) and the options of htsim's program.

What they describe runs as packets. Each option without a counterpart is named in a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from armillary.base.document import Source, is_there
from armillary.base.errors import InputError
from armillary.platform.files.astra_sim import platform_on, read_dimensions
from armillary.platform.files.htsim_options import read_options
from armillary.platform.files.htsim_topology import read_htsim
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Packets, Platform
from armillary.platform.network import NetworkChoice
from armillary.platform.topology.network import Network


@dataclass(frozen=True)
class HtsimMachine:
    """A machine of the HTSim back end's files, and the lines that the back end prints before and after the ranks'."""

    platform: Platform
    heading: str
    ending: str = "HTSim stopping simulation...\nSimulation of events finished\n"


def read_htsim_machine(
    system: Source,
    network: Source,
    options: Sequence[str],
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    protocol: str = "tcp",
) -> HtsimMachine:
    """Return the machine of these files.

    Args:
        system: System JSON.
        network: Analytical-network YAML, of which the number of ranks and the sizes of dimensions count.
        options: Htsim's own, what stands after ``--htsim_opts``: ``-topo f`` is required.
        memory: Remote-memory JSON, or None.
        comm_groups: Communicator-group JSON, or None.
        cli: Flags such as ``--num-queues-per-dim=2``.
        protocol: Of ``--htsim-proto``: tcp, or uet for Ultra Ethernet.

    Raises:
        InputError: A file is missing, malformed, or the files contradict each other; or an option is none of htsim's.
    """
    warnings: list[str] = []
    given = read_options(protocol, options)
    sizes = tuple(dimension.size for dimension in read_dimensions(network, warnings))
    name = given.topology
    # Relative to the current folder as there, or else to that of the network file.
    beside = name if isinstance(network, dict) else Path(str(network)).parent / name
    path = beside if not is_there(name) and is_there(beside) else name
    topology = read_htsim(path, given.nic / 8)
    hosts = topology.npus
    if hosts != math.prod(sizes):
        raise InputError(
            f"{path}: Nodes: got {hosts}, expected {math.prod(sizes)}, the product of npus_count of the network file"
        )
    for option, got, expected in (
        ("-nodes", given.nodes, hosts), ("-tiers", given.tiers, len(topology.tiers) - 1),
    ):  # fmt: skip
        if got is not None and got != expected:
            raise InputError(
                f"--htsim_opts: {option}: got {got}, expected {expected}, the {option[1:].capitalize()} of {path}"
            )
    warnings += given.notes
    # What tier 0 sends to a host has the rate that the file states.
    if (rate := float(topology.bandwidth[topology.head < hosts][0]) * 8) != given.nic:
        warnings.append(
            f"{path}: hosts send at {given.nic:g} Gb/s, htsim's own rate of NICs, not at the {rate:g} Gb/s of tier 0"
        )
    platform = platform_on(
        logical_dimensions(topology, sizes if len(sizes) > 1 else ()), system, memory, comm_groups, cli, warnings,
        logged=True,
    )  # fmt: skip
    platform = replace(
        platform, topology=Network(topology, "ecmp"), packets=Packets(given.protocol, given.packets, f"{path}"),
        network_model=NetworkChoice("packet"), profile="physical",
    )  # fmt: skip
    lines = [
        " ".join(options), f"FatTree topology input file: {name}", *given.before, f"requested nodes {hosts}",
        *given.after, f"actual nodes {hosts}",
    ]  # fmt: skip
    return HtsimMachine(platform, "".join(f"{line}\n" for line in lines))
