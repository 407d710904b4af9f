"""Configurations of ASTRA-sim-service, as the input files and flags of ASTRA-sim's programs that it would make of them.

A configuration is the JSON (or YAML) of the service's ``Config`` (astra-sim/astra-sim-service, `models/schema/config`):
``common_config`` has what all back ends share, ``network_backend`` the chosen one, and ``infragraph`` a network that
the back end may take in the place of its own. Names are those of ASTRA-sim's files with ``_`` for ``-``, but for four.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from armillary.base.document import Document, Source, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath, show
from armillary.platform.fields import first_error
from armillary.platform.files.astra_sim_keys import LOG_KEYS, MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS
from armillary.platform.files.astra_sim_service_schema import (
    Config,
    Dimension,
    FatTree,
    Htsim,
    Ns3,
    Physical,
)
from armillary.platform.files.infragraph import read_infragraph
from armillary.platform.files.network_convert import convert_graph
from armillary.platform.files.ns3_config import KEYS as NS3_KEYS

_LETTERS = {"latency": "L", "overhead": "o", "gap": "g", "global_memory": "G"}
"""The service's names of the system file's one-letter keys."""
_TOPOLOGIES = {"ring": "Ring", "fullyconnected": "FullyConnected", "switch": "Switch"}
# What the service writes where a configuration leaves it out, of the keys that have an effect.
_NS3_DEFAULTS = {"PACKET_PAYLOAD_SIZE": 1024, "CC_MODE": 12, "BUFFER_SIZE": 32}
_TIER_KEYS = (
    "downlink_speed_gbps", "radix_up", "radix_down", "queue_up", "queue_down", "oversubscribed", "bundle",
    "switch_latency_ns", "downlink_latency_ns",
)  # fmt: skip


@dataclass
class ServiceInputs:
    """What a configuration stands for.

    Attributes:
        command: Words of ``armillary astra-sim`` before the flags.
        files: Name -> text of each input file.
        flags: Flag -> the file it names, or its value.
        options: What stands after the flags: htsim's own options.
        assumed: What was assumed for links that state no numbers.
        warnings: What of the configuration has no effect.
    """

    command: list[str]
    files: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_service(source: Source) -> ServiceInputs:
    """Return the inputs that a configuration of the service stands for.

    Args:
        source: JSON or YAML: a path, or its content.

    Raises:
        InputError: It is missing or malformed, or chooses what it does not describe.
    """
    document = read_document(source, "configuration of ASTRA-sim-service", "yaml")
    try:
        found = Config.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
    return _Converter(document, found).inputs()


class _Converter:
    def __init__(self, document: Document, found: Config) -> None:
        self.document, self.found, self.made = document, found, ServiceInputs([])

    def inputs(self) -> ServiceInputs:
        made, common = self.made, self.found.common_config
        if not common.workload:
            raise self.document.error(
                ("common_config", "workload"), "none, expected the prefix of the traces, <prefix>.<rank>.et"
            )
        made.flags["workload-configuration"] = common.workload
        self._file("system-configuration", "system.json", _json(self._system()))
        self._back_end()
        memory = self._renamed(("common_config", "remote_memory"), common.remote_memory, MEMORY_KEYS) or {
            "memory-type": "NO_MEMORY_EXPANSION"
        }
        self._file("remote-memory-configuration", "memory.json", _json(memory))
        if common.communicator_group:
            groups = {group.identifier: group.npu_list for group in common.communicator_group}
            self._file("comm-group-configuration", "groups.json", _json(groups))
        for name, value in common.cmd_parameters.model_dump(exclude_none=True).items():
            made.flags[name.replace("_", "-")] = str(value).lower() if isinstance(value, bool) else str(value)
        if common.logging:
            made.warnings.append(
                f"{self.document.name}: common_config.logging has no effect, expected --logging-configuration TOML"
            )
        return made

    def _file(self, flag: str, name: str, text: str) -> None:
        self.made.files[name] = text
        if flag:
            self.made.flags[flag] = name

    def _system(self) -> dict[str, Any]:
        given, at = self.found.common_config.system, ("common_config", "system")
        letters = {
            _LETTERS[key]: value for key, value in given.items() if key in _LETTERS and value is not None
        }
        rest = {key: value for key, value in given.items() if key not in _LETTERS}
        return self._renamed(at, rest, (*SYSTEM_KEYS, *LOG_KEYS)) | letters

    def _renamed(self, at: KeyPath, given: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
        """Return keys with ``-``; those without a value are as if they were not there."""
        names = {key.replace("-", "_"): key for key in known}
        for key in given:
            if key not in names:
                raise self.document.error((*at, key), f"unknown key{nearest(str(key), names)}")
        return {names[key]: value for key, value in given.items() if value is not None}

    def _back_end(self) -> None:
        network = self.found.network_backend
        there = [name for name in ("analytical_congestion_aware", "analytical_congestion_unaware", "ns3", "htsim")
                 if getattr(network, name) is not None]  # fmt: skip
        choice = network.choice or (there[0] if len(there) == 1 else None)
        if choice is None or choice not in there:
            raise self.document.error(
                ("network_backend", "choice"),
                f"got {show(choice)}, expected a back end that is described: {', '.join(there) or 'none is'}",
            )
        chosen: Any = getattr(network, choice)
        if choice == "ns3":
            self._ns3(chosen)
        elif choice == "htsim":
            self._htsim(chosen)
        else:
            model = "congestion" if choice == "analytical_congestion_aware" else "analytical"
            self.made.command = [f"--network-model={model}"]
            topology = chosen.topology
            at = ("network_backend", choice, "topology")
            if self._by_infragraph(topology, "network", at):
                text = self._of_infragraph("astra-sim")
            else:
                text = self._dimensions(topology.network)
            self._file("network-configuration", "network.yml", text)

    def _by_infragraph(self, topology: Any, other: str, at: KeyPath) -> bool:
        """Return whether a back end takes the InfraGraph; what it chooses must be there."""
        own = getattr(topology, other)
        if topology.choice == "infragraph" or (topology.choice is None and not own):
            if self.found.infragraph is None:
                raise self.document.error(
                    at, f"chooses the infragraph, which is missing; expected it, or {other}"
                )
            return True
        if not own:
            raise self.document.error((*at, other), "missing, and chosen")
        return False

    def _of_infragraph(self, to: Literal["astra-sim", "ns3", "htsim"]) -> str:
        given = dict(self.found.infragraph or {})
        read = read_infragraph({key: value for key, value in given.items() if value is not None})
        self.made.assumed += read.assumed
        self.made.warnings += read.warnings
        return convert_graph(read.topology, to, f"{self.document.name}: infragraph").text

    def _dimensions(self, rows: list[Dimension]) -> str:
        columns = (
            [_TOPOLOGIES[row.topology] for row in rows], [row.npus_count for row in rows],
            [row.bandwidth for row in rows], [row.latency for row in rows],
        )  # fmt: skip
        return yaml.safe_dump(
            dict(zip(NETWORK_KEYS, columns, strict=True)), sort_keys=False, default_flow_style=None
        )

    def _ns3(self, chosen: Ns3) -> None:
        at = ("network_backend", "ns3")
        self.made.command = ["ns3"]
        if self._by_infragraph(chosen.topology, "nc_topology", (*at, "topology")):
            text = self._of_infragraph("ns3")
        else:
            text = self._physical(chosen.topology.nc_topology, (*at, "topology", "nc_topology"))
        self.made.files["topology.txt"] = text
        given = {str(key).upper(): value for key, value in chosen.network.items() if value is not None}
        for key in given:
            if key not in NS3_KEYS:
                hint = nearest(key.lower(), [each.lower() for each in NS3_KEYS])
                raise self.document.error((*at, "network", key.lower()), f"unknown key{hint}")
        keys = _NS3_DEFAULTS | given | {"TOPOLOGY_FILE": "topology.txt"}
        lines = [f"{key} {_words(value)}\n" for key, value in keys.items()]
        self._file("network-configuration", "config.txt", "".join(lines))
        sizes = chosen.logical_topology.logical_dimensions
        nodes, switches, _ = (int(word) for word in text.split("\n", 1)[0].split())
        if not sizes:
            sizes = [nodes - switches]
        if math.prod(sizes) > nodes - switches:
            raise self.document.error(
                (*at, "logical_topology", "logical_dimensions"),
                f"got {show(sizes)}, expected a product of at most {nodes - switches}, the hosts",
            )
        logical = {"logical-dims": [str(size) for size in sizes]}
        self._file("logical-topology-configuration", "logical.json", _json(logical))

    def _physical(self, found: Physical | None, at: KeyPath) -> str:
        assert found is not None
        for name, count, listed in (
            ("total_switches", found.total_switches, found.switch_ids),
            ("total_links", found.total_links, found.connections),
        ):
            if count != len(listed):
                raise self.document.error(
                    (*at, name), f"got {count}, expected {len(listed)}, as many as are listed"
                )
        rows = [
            f"{row.source_index} {row.destination_index} {_words(row.bandwidth)} {_words(row.latency)} "
            f"{_words(row.error_rate)}"
            for row in found.connections
        ]
        head = f"{found.total_nodes} {found.total_switches} {found.total_links}"
        return "\n".join([head, " ".join(map(str, found.switch_ids)), *rows, ""])

    def _htsim(self, chosen: Htsim) -> None:
        at = ("network_backend", "htsim", "topology")
        self.made.command = ["htsim"]
        if self._by_infragraph(chosen.topology, "network_topology_configuration", at):
            tree = self._of_infragraph("htsim")
            nodes = int(tree.split(maxsplit=2)[1])
            one = [Dimension(topology="switch", npus_count=nodes, bandwidth=1.0, latency=0.0)]
            network = self._dimensions(one)
        else:
            described = chosen.topology.network_topology_configuration
            assert described is not None
            network = self._dimensions(described.network)
            nodes = described.htsim_topology.fat_tree.nodes
            tree = self._tree(
                described.htsim_topology.fat_tree, (*at, "network_topology_configuration", "htsim_topology")
            )
        self._file("network-configuration", "network.yml", network)
        self.made.files["tree.topo"] = tree
        tcp = chosen.htsim_protocol.tcp
        self.made.options = ["--htsim_opts", "-topo", "tree.topo", "-nodes", _words(tcp.nodes or nodes)]
        for option, value in (("-sub", tcp.sub), ("-o", tcp.o)):
            if value is not None:
                self.made.options += [option, _words(value)]
        if tcp.tcp_protocol:
            self.made.options += [tcp.tcp_protocol, *(["1"] if tcp.tcp_protocol == "COUPLED_EPSILON" else [])]

    def _tree(self, tree: FatTree, at: KeyPath) -> str:
        lines = [f"Nodes {tree.nodes}", f"Tiers {tree.tiers}", f"Podsize {tree.podsize}"]
        for number, tier in enumerate((tree.tier_0, tree.tier_1, tree.tier_2)):
            if tier is None or number >= tree.tiers:
                continue
            lines.append(f"Tier {number}")
            for key, value in tier.items():
                if key not in _TIER_KEYS:
                    place = (*at, "fat_tree", f"tier_{number}", key)
                    raise self.document.error(place, f"unknown key{nearest(key, _TIER_KEYS)}")
                if value is not None:
                    lines.append(f"{key.capitalize()} {value}")
        return "\n".join([*lines, ""])


def _words(value: object) -> str:
    """Return a value as words of one line."""
    words = value if isinstance(value, list) else [value]
    text = " ".join(str(word) for word in words)
    if not text.strip() or "\n" in text or "#" in text:
        raise InputError(f"configuration of ASTRA-sim-service: got {show(value)}, expected words of one line")
    return text


def _json(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
