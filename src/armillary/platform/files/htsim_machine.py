"""Inputs of ASTRA-sim's HTSim back end: network file, topology (``.topo``) and the options of htsim's TCP program.

What they describe runs as packets of protocol tcp. Each option without a counterpart is named in a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from armillary.base.document import Source, is_there
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.base.units import whole
from armillary.platform.files.astra_sim import platform_on, read_dimensions
from armillary.platform.files.htsim_topology import read_htsim
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Packets, Platform
from armillary.platform.network import NetworkChoice
from armillary.platform.topology.network import Network

# Htsim's host NICs have this rate whatever tier 0 of the topology says, Gb/s.
_NIC = 100
# Packets that a queue holds where the topology states no bytes.
_QUEUE = 8
_MSS, _HEADER = 1448, 90
_COUPLED = ("COUPLED_INC", "FULLY_COUPLED", "COUPLED_TCP", "COUPLED_SCALABLE_TCP", "COUPLED_EPSILON")
_OPTIONS = ("-topo", "-nodes", "-o", "-sub", "UNCOUPLED", *_COUPLED)
_MOST_SUBFLOWS = 1 << 10


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
) -> HtsimMachine:
    """Return the machine of these files.

    Args:
        system: System JSON.
        network: Analytical-network YAML, of which the number of ranks and the sizes of dimensions count.
        options: Htsim's own, what stands after ``--htsim_opts``: ``-topo f`` is required.
        memory: Remote-memory JSON, or None.
        comm_groups: Communicator-group JSON, or None.
        cli: Flags such as ``--num-queues-per-dim=2``.

    Raises:
        InputError: A file is missing, malformed, or the files contradict each other; or an option is none of htsim's.
    """
    warnings: list[str] = []
    given = _parsed(options)
    sizes = tuple(dimension.size for dimension in read_dimensions(network, warnings))
    name = given.get("-topo")
    if name is None:
        raise InputError(
            "--htsim_opts: missing option '-topo', expected -topo FILE, a topology of htsim (.topo)"
        )
    # Relative to the current folder as there, or else to that of the network file.
    beside = name if isinstance(network, dict) else Path(str(network)).parent / name
    path = beside if not is_there(name) and is_there(beside) else name
    topology = read_htsim(path, _NIC / 8)
    hosts = topology.npus
    if hosts != math.prod(sizes):
        raise InputError(
            f"{path}: Nodes: got {hosts}, expected {math.prod(sizes)}, the product of npus_count of the network file"
        )
    wanted = _count("-nodes", given.get("-nodes", str(hosts)), 1 << 31)
    if wanted != hosts:
        raise InputError(f"--htsim_opts: -nodes: got {wanted}, expected {hosts}, the Nodes of {path}")
    subflows = _count("-sub", given.get("-sub", "1"), _MOST_SUBFLOWS)
    algorithm = given.get("algorithm", "UNCOUPLED")
    warnings += _notes(given, subflows, algorithm, str(path))
    if (rate := float(read_htsim(path).bandwidth[0]) * 8) != _NIC:
        warnings.append(
            f"{path}: hosts send at {_NIC} Gb/s, htsim's own rate of NICs, not at the {rate:g} Gb/s of tier 0"
        )
    platform = platform_on(
        logical_dimensions(topology, sizes if len(sizes) > 1 else ()), system, memory, comm_groups, cli, warnings,
        logged=True,
    )  # fmt: skip
    packets = {"algorithm": "newreno", "mss": _MSS, "header": _HEADER, "buffer": _QUEUE * (_MSS + _HEADER)}
    platform = replace(
        platform, topology=Network(topology, "ecmp"), packets=Packets("tcp", packets, f"{path}"),
        network_model=NetworkChoice("packet"), profile="physical",
    )  # fmt: skip
    lines = [
        " ".join(options), f"FatTree topology input file: {name}", f"Using subflow count {subflows}",
        f"requested nodes {wanted}", f"Using algo={algorithm} epsilon={given.get('epsilon', '1')}",
        f"Logging to {given.get('-o', 'logout.dat')}", f"actual nodes {hosts}",
    ]  # fmt: skip
    return HtsimMachine(platform, "".join(f"{line}\n" for line in lines))


def _parsed(options: Sequence[str]) -> dict[str, str]:
    """Return htsim's options by name; `algorithm` is the word that names it, `epsilon` its number."""
    found: dict[str, str] = {}
    words = list(options)
    while words:
        word = words.pop(0)
        if word not in _OPTIONS:
            raise InputError(
                f"--htsim_opts: got {show(word)}, expected one of {', '.join(_OPTIONS)}{nearest(word, _OPTIONS)}"
            )
        key = word
        if not word.startswith("-"):
            found["algorithm"] = word
            if word != "COUPLED_EPSILON":
                continue
            key = "epsilon"
        if not words:
            raise InputError(f"--htsim_opts: {word}: no value, expected one")
        found[key] = words.pop(0)
    return found


def _count(option: str, text: str, most: int) -> int:
    value = whole(text)
    if value is None or not 1 <= value <= most:
        raise InputError(
            f"--htsim_opts: {option}: got {show(text)}, expected a whole number from 1 to {most}"
        )
    return value


def _notes(given: dict[str, str], subflows: int, algorithm: str, path: str) -> list[str]:
    """Return what of the options is not simulated as htsim does, the assumptions first."""
    notes = [
        f"{path}: htsim's TCP is NewReno with queues of {_QUEUE} packets where the topology states no bytes; packets "
        f"of {_MSS} + {_HEADER} bytes, the first window and timeouts are not htsim's"
    ]
    if subflows > 1:
        notes.append(f"--htsim_opts: -sub {subflows} has no effect: a message has one flow")
    if algorithm != "UNCOUPLED":
        notes.append(
            f"--htsim_opts: {algorithm} has no effect: a message has one flow, and nothing to be coupled with"
        )
    if "-o" in given:
        notes.append(f"--htsim_opts: -o {given['-o']}: not written")
    return notes
