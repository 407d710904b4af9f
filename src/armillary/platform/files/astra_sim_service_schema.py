"""The keys of a configuration of ASTRA-sim-service, in the schema's order and with its names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from armillary.platform.fields import Part


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


# Enumerations of the service are written in lower case by one of its writers and in upper case by another.
Lower = BeforeValidator(_lower)
BackEnd = Literal["analytical_congestion_aware", "analytical_congestion_unaware", "ns3", "htsim"]
Whole = Annotated[int, Field(ge=0, lt=2**53)]


class Arguments(Part):
    """Flags of the program."""

    num_queues_per_dim: Whole | None = None
    comm_scale: float | None = None
    injection_scale: float | None = None
    rendezvous_protocol: bool | None = None


class Group(Part):
    """A communicator."""

    identifier: str
    npu_list: list[Whole]


class Common(Part):
    """What all back ends share."""

    workload: str | None = None
    system: dict[str, Any] = Field(default={})
    communicator_group: list[Group] = Field(default=[])
    remote_memory: dict[str, Any] = Field(default={})
    logging: dict[str, Any] | None = None
    cmd_parameters: Arguments = Field(default=Arguments())


class Dimension(Part):
    """A dimension of the network, in GB/s and ns."""

    topology: Annotated[Literal["ring", "fullyconnected", "switch"], Lower]
    npus_count: Whole
    bandwidth: float
    latency: float


class AnalyticalTopology(Part):
    """Where the network of an analytical back end is described."""

    choice: Annotated[Literal["network", "infragraph"] | None, Lower] = None
    network: list[Dimension] = Field(default=[])


class Analytical(Part):
    """An analytical back end."""

    topology: AnalyticalTopology


class Connection(Part):
    """A link of an ns-3 topology."""

    source_index: Whole
    destination_index: Whole
    bandwidth: str
    latency: str
    error_rate: str | float = "0"


class Physical(Part):
    """A physical topology of ns-3."""

    total_nodes: Whole
    total_switches: Whole
    total_links: Whole
    switch_ids: list[Whole] = Field(default=[])
    connections: list[Connection] = Field(default=[])


class Ns3Topology(Part):
    """Where the network of ns-3 is described."""

    choice: Annotated[Literal["nc_topology", "infragraph"] | None, Lower] = None
    nc_topology: Physical | None = None


class Logical(Part):
    """The dimensions that collectives see."""

    logical_dimensions: list[Whole] = Field(default=[])


class Ns3(Part):
    """The ns-3 back end."""

    network: dict[str, Any] = Field(default={})
    topology: Ns3Topology
    logical_topology: Logical = Field(default=Logical())
    trace: dict[str, Any] | None = None


class FatTree(Part):
    """A fat tree of htsim."""

    nodes: Whole
    tiers: Whole
    podsize: Whole
    tier_0: dict[str, Whole | None]
    tier_1: dict[str, Whole | None]
    tier_2: dict[str, Whole | None] | None = None


class HtsimGraph(Part):
    """The graph of htsim."""

    choice: Annotated[Literal["fat_tree"] | None, Lower] = None
    fat_tree: FatTree


class HtsimNetwork(Part):
    """Dimensions and graph of htsim."""

    network: list[Dimension] = Field(min_length=1)
    htsim_topology: HtsimGraph


class HtsimTopology(Part):
    """Where the network of htsim is described."""

    choice: Annotated[Literal["network_topology_configuration", "infragraph"] | None, Lower] = None
    network_topology_configuration: HtsimNetwork | None = None


class Tcp(Part):
    """Options of htsim's TCP."""

    o: str | None = None
    sub: str | Whole | None = None
    nodes: str | Whole | None = None
    tcp_protocol: str | None = None


class Protocol(Part):
    """The transport of htsim."""

    choice: Annotated[Literal["tcp"] | None, Lower] = None
    tcp: Tcp = Field(default=Tcp())


class Htsim(Part):
    """The htsim back end."""

    htsim_protocol: Protocol = Field(default=Protocol())
    topology: HtsimTopology


class Network(Part):
    """The back ends that are described, and the one that is chosen."""

    choice: Annotated[BackEnd | None, Lower] = None
    analytical_congestion_aware: Analytical | None = None
    analytical_congestion_unaware: Analytical | None = None
    ns3: Ns3 | None = None
    htsim: Htsim | None = None


class Config(Part):
    """A configuration."""

    common_config: Common
    network_backend: Network
    infragraph: dict[str, Any] | None = None
