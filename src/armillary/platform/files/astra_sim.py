"""Reader of ASTRA-sim's own network, system, remote-memory and communicator-group files.

What that program accepts is accepted here; where it does something odd without a word, the platform carries
a warning. A key that neither it nor its documentation knows is an error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from armillary.base.document import Document, Source, is_there, read_document
from armillary.base.hints import KeyPath
from armillary.platform.collectives import COLLECTIVES, algorithm_text, read_algorithms, read_groups
from armillary.platform.files.astra_sim_1 import is_network, read_dimensions_1, read_system
from armillary.platform.files.astra_sim_custom import custom_by_node, custom_prefix
from armillary.platform.files.astra_sim_keys import (
    INTER_DIMENSION,
    INTRA_DIMENSION,
    LOG_KEYS,
    MEMORY_KEYS,
    NETWORK_IGNORED,
    NETWORK_KEYS,
    SYSTEM_IGNORED,
    SYSTEM_KEYS,
)
from armillary.platform.files.astra_sim_values import INT_MAX, note_ignored, switch, truncate, truncated
from armillary.platform.files.flags import read_columns, read_flags
from armillary.platform.kernels import Compute
from armillary.platform.limits import placed
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import AstraSimSystem, Collectives, Npu, Platform, SchedulingName, SharedBus
from armillary.platform.network import TOPOLOGIES, Dimension

# Topologies that this profile has under their own name: a Torus is simulated as a Ring, but no file may say
# so.
_TOPOLOGIES = tuple(name for name, topology in TOPOLOGIES.items() if topology.astra_sim == name)
_MEMORY_KINDS = {
    "NO_MEMORY_EXPANSION": "none",
    "PER_NPU_MEMORY_EXPANSION": "per-npu",
    "PER_NODE_MEMORY_EXPANSION": "per-node",
    "MEMORY_POOL": "pool",
}
# Dataclass field -> column of the file, so that an error names the line that a user can mend.
_COLUMN_OF = {"topology": "topology", "size": "npus_count", "bandwidth": "bandwidth", "latency": "latency"}
_KEY_OF: dict[str, KeyPath] = {
    "endpoint_delay": ("endpoint-delay",), "bandwidth": ("local-mem-bw",), "peak": ("peak-perf",),
    "shared_bus": ("model-shared-bus",),
}  # fmt: skip
_DEFAULT_DIMENSIONS = 4  # length of its default involved_dim list


def read_platform(
    system: Source,
    network: Source,
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
    *,
    logged: bool = False,
) -> Platform:
    """Read a platform described in ASTRA-sim's formats.

    Args:
        system: System JSON.
        network: Analytical-network YAML.
        memory: Remote-memory JSON; None means no remote memory.
        comm_groups: Communicator-group JSON; None, or a file name that contains ``empty``, means no groups.
        cli: Command-line flags, ``--num-queues-per-dim=2`` or as two words.
        logged: The keys of the log are obeyed (`read_log_keys`); without, a warning says that they have no effect.

    Returns:
        The platform, in dialect ``astra-sim``; odd but accepted input is named in its `warnings`.

    Raises:
        InputError: A file is missing, malformed or has a value out of range.
    """
    warnings: list[str] = []
    cli = list(cli)
    dimensions = read_dimensions(network, warnings, read_columns(cli))
    return platform_on(dimensions, system, memory, comm_groups, cli, warnings, logged=logged)


def platform_on(
    dimensions: tuple[Dimension, ...],
    system: Source,
    memory: Source | None,
    comm_groups: Source | None,
    cli: Iterable[str],
    warnings: list[str],
    *,
    logged: bool,
) -> Platform:
    """Return the platform of ASTRA-sim's files over dimensions that some network file describes, see `read_platform`.

    Raises:
        InputError: A file is missing, malformed or has a value out of range.
    """
    # Flags first: their values scale what the files say.
    flags = read_flags(cli, warnings)
    npus = math.prod(dimension.size for dimension in dimensions)
    document = read_system(system)
    # A file without a policy leaves it to each profile; without an endpoint delay, too.
    policies: dict[str, SchedulingName] = {"LIFO": "lifo", "FIFO": "fifo", "EXPLICIT": "priority"}
    parts = _read_system(document, len(dimensions), flags, warnings, logged=logged)
    return Platform(
        dimensions=dimensions,
        npu=parts.npu,
        compute=parts.compute,
        collectives=parts.collectives,
        astra_sim=parts.astra_sim,
        scheduling=policies.get(document.data.get("scheduling-policy", ""), "fair"),
        remote_memory=RemoteMemory() if memory is None else _read_memory(memory, npus, warnings),
        groups=_read_groups(comm_groups, npus, warnings),
        dialect="astra-sim",
        profile="astra-sim",
        warnings=tuple(warnings),
        source=document.path,
    )


def read_dimensions(
    network: Source, warnings: list[str], overrides: Mapping[str, list[float]] | None = None
) -> tuple[Dimension, ...]:
    """Return the dimensions of an analytical-network YAML, and add what is odd about it to `warnings`.

    Files of ASTRA-sim 1.0 are read, too; `overrides` are the values that flags give instead of theirs.

    Raises:
        InputError: The file is missing, malformed or has a value out of range.
    """
    document = read_document(network, "network configuration", "yaml")
    if is_network(document):
        return read_dimensions_1(document, overrides or {}, warnings)
    warnings += [
        f"command line: --{key} has no effect: for network files of version 1.0" for key in overrides or ()
    ]
    note_ignored(document, document.check_keys(NETWORK_KEYS, ignored=NETWORK_IGNORED), warnings)
    columns: dict[str, Any] = {}
    for key in NETWORK_KEYS:
        # Every column has one entry per dimension; `topology` is the first key and gives their number.
        values = document.require(key, "one value per network dimension")
        if isinstance(values, str):
            values = [values]  # as the congestion back end of version 1.0 allows
        if not isinstance(values, list | tuple) or not values:
            document.reject((key,), values, "a list with one value per network dimension")
        if len(values) != (count := len(columns.get("topology", values))):
            raise document.error(
                (key,), f"has length {len(values)}, expected {count}, the length of topology"
            )
        columns[key] = values
    dimensions = []
    # That program refuses one NPU, on which a trace of one rank runs.
    fewest = 1 if len(columns["topology"]) == 1 else 2
    for d, topology in enumerate(columns["topology"]):
        # The entry d of every column describes one dimension.
        document.choice(("topology", d), topology, _TOPOLOGIES)
        size = document.whole(("npus_count", d), columns["npus_count"][d], fewest)
        bandwidth = document.number(
            ("bandwidth", d), columns["bandwidth"][d], "a number of GB/s above 0", low=0.0, exclusive=True
        )
        latency = document.number(("latency", d), columns["latency"][d], "a number of ns, 0 or more", low=0.0)
        # That program's GB is 2**30 bytes; the order of these operations decides how times truncate.
        rate = bandwidth * 2**30 / 10**9
        with placed(document, (), {key: (name, d) for key, name in _COLUMN_OF.items()}):
            dimensions.append(Dimension(f"dim{d}", topology, size, rate, latency))
    if math.prod(dimension.size for dimension in dimensions) > INT_MAX:
        # The product: each column passed its own check already.
        document.reject(("npus_count",), columns["npus_count"], f"at most {INT_MAX} NPUs in all")
    if len(dimensions) > _DEFAULT_DIMENSIONS:
        warnings.append(
            f"{document.name}: {len(dimensions)} network dimensions: a collective without involved_dim uses "
            f"only the first {_DEFAULT_DIMENSIONS}, as in ASTRA-sim"
        )
    return tuple(dimensions)


class LogKeys(NamedTuple):
    """What a system file says of the log: the files get a line for each node; the prefix of traces of memory, or ""."""

    issues: bool = False
    memory: str = ""


def read_log_keys(system: Source) -> LogKeys:
    """Return the keys of a system file that say what is told of a run.

    Raises:
        InputError: the file cannot be read, or a value is none.
    """
    document = read_system(system)
    name = document.data.get("local-mem-trace-filename", "local_mem_trace")
    if not isinstance(name, str) or not name:
        document.reject(("local-mem-trace-filename",), name, "the prefix of files")
    tracked = switch(document, "track-local-mem")
    return LogKeys(switch(document, "trace-enabled"), name if tracked else "")


class _System(NamedTuple):
    """What a system file says, by the parts of a machine."""

    npu: Npu
    compute: Compute
    collectives: Collectives
    astra_sim: AstraSimSystem


def _read_system(
    document: Document, dimensions: int, flags: Mapping[str, Any], warnings: list[str], *, logged: bool
) -> _System:
    data = document.data
    # Fatal only if a key is unknown; keys that the documentation names but the program skips give a warning.
    known, ignored = SYSTEM_KEYS, [*SYSTEM_IGNORED, *LOG_KEYS]
    if logged:
        known, ignored = (*SYSTEM_KEYS, *LOG_KEYS), SYSTEM_IGNORED
    note_ignored(document, document.check_keys(known, ignored=ignored), warnings)
    whole = functools.partial(truncated, document, warnings)
    splits = document.require("preferred-dataset-splits", "the number of chunks of a collective")
    if "scheduling-policy" in data:
        document.choice(("scheduling-policy",), data["scheduling-policy"], ("LIFO", "FIFO", "EXPLICIT"))
    optimization = document.choice(
        ("collective-optimization",),
        data.get("collective-optimization", "baseline"),
        ("baseline", "localBWAware"),
    )
    for key, default in (("scheduling-policy", "FIFO"), ("collective-optimization", "baseline")):
        if key not in data:
            warnings.append(f"{document.name}: no {key}: {default} is used")
    delay = None
    if "endpoint-delay" in data:
        # Scaled, then truncated, in this order: the program casts the product to an integer.
        delay = int(whole("endpoint-delay", 0) * flags["injection-scale"])
    bandwidth = document.number(("local-mem-bw",), data.get("local-mem-bw", 0), "GB/s, 0 or more", low=0.0)
    peak = document.number(("peak-perf",), data.get("peak-perf", 0), "TFLOP/s, 0 or more", low=0.0)
    roofline = switch(document, "roofline-enabled")
    if bandwidth == 0:
        warnings.append(f"{document.name}: no local-mem-bw: reductions cost no time")
    if roofline and (bandwidth == 0 or peak == 0):
        # The first of both that is missing, so that the warning names one key.
        absent = "local-mem-bw" if bandwidth == 0 else "peak-perf"
        warnings.append(f"{document.name}: roofline-enabled without {absent}: compute nodes cannot be timed")
    with placed(document, (), _KEY_OF):
        astra_sim = AstraSimSystem(
            collective_optimization="localBWAware" if optimization == "localBWAware" else "baseline",
            inter_dimension=_scheduling(document, "inter-dimension-scheduling", INTER_DIMENSION, warnings),
            intra_dimension=_scheduling(document, "intra-dimension-scheduling", INTRA_DIMENSION, warnings),
            local_reduction_delay=whole("local-reduction-delay", 0, 1),
            queues_per_dim=flags["num-queues-per-dim"],
            rendezvous=flags["rendezvous-protocol"],
            shared_bus=_read_bus(document, warnings),
            custom={
                kind: custom_prefix(document, f"{kind}-implementation-custom")
                for kind in COLLECTIVES
                if f"{kind}-implementation-custom" in data
            },
            custom_by_node=custom_by_node(document),
        )
        collectives = Collectives(
            {
                # Files may say "tree" for doubleBinaryTree: `read_algorithms` has resolved aliases, and this
                # writes the usual name.
                kind: tuple(map(algorithm_text, read_algorithms(document, (key,), data[key], dimensions)))
                for kind in COLLECTIVES
                if (key := f"{kind}-implementation") in data
            },
            chunks=truncate(document, warnings, ("preferred-dataset-splits",), splits, 1),
            active_chunks=whole("active-chunks-per-dimension", 1, 1),
        )
        # TFLOP/s and GB/s in the file; here FLOP/s and bytes per ns, which equals GB/s.
        npu = Npu(peak * 1e12, LocalMemory(bandwidth), delay)
        compute = Compute("roofline" if roofline else "", replay=switch(document, "replay-only"))
    few = [
        kind
        for kind, names in collectives.algorithms.items()
        # "oneRing" alone runs over all dimensions, so that one name is not too few.
        if len(names) < dimensions and not names[0].startswith("one")
    ]
    if few:
        warnings.append(
            f"{document.name}: fewer algorithms than the {dimensions} network dimensions: {', '.join(few)} "
            "run on the first dimensions only, as in ASTRA-sim"
        )
    return _System(npu, compute, collectives, astra_sim)


def _scheduling(document: Document, key: str, values: Mapping[str, str], warnings: list[str]) -> Any:
    # The first of the values is what version 2 always does.
    usual = next(iter(values))
    found = values[document.choice((key,), document.data.get(key, usual), values)]
    if found != usual:
        warnings.append(
            f"{document.name}: {key}: {found} is obeyed; ASTRA-sim 2 reads past this key: its program for it "
            "is out of reach there"
        )
    return found


def _read_bus(document: Document, warnings: list[str]) -> SharedBus | None:
    given = [name for name in ("L", "o", "g", "G") if name in document.data]
    values = {
        name: document.number((name,), document.data[name], "a number, 0 or more", low=0.0) for name in given
    }
    # Any number other than 1 switches the bus off.
    if document.whole(("model-shared-bus",), document.data.get("model-shared-bus", 0), 0) != 1:
        if given:
            warnings.append(f"{document.name}: {', '.join(given)} have no effect without model-shared-bus: 1")
        return None
    with placed(document, ()):
        return SharedBus(
            # L, o and g are whole ns there; G is ns per byte and stays a fraction.
            L=int(values.get("L", 0)),
            o=int(values.get("o", 0)),
            g=int(values.get("g", 0)),
            G=values.get("G", 0.0),
        )


def _read_memory(source: Source, npus: int, warnings: list[str]) -> RemoteMemory:
    document = read_document(source, "remote-memory configuration", "json")
    document.check_keys(MEMORY_KEYS)
    data = document.data
    name = document.choice(("memory-type",), document.require("memory-type"), _MEMORY_KINDS)
    kind = cast(Any, _MEMORY_KINDS[name])
    # Keys of MEMORY_KEYS that count, in its order: the type alone; with latency and bandwidth; and the node
    # sizes.
    used = {"none": 1, "per-node": 5}.get(kind, 3)
    unused = [key for key in data if key not in MEMORY_KEYS[:used]]
    if unused:
        warnings.append(f"{document.name}: {', '.join(unused)} have no effect with memory-type {name}")
    if kind == "none":
        return RemoteMemory()
    per_node = 0
    if kind == "per-node":
        document.require("num-npus-per-node", f"needed by {name}")
        per_node = document.whole(("num-npus-per-node",), data["num-npus-per-node"], 1)
        nodes = document.whole(("num-nodes",), document.require("num-nodes", f"needed by {name}"), 1)
        # Nodes may have room for more NPUs than there are, but not for fewer.
        if nodes * per_node < npus:
            raise document.error(
                ("num-nodes",),
                f"{nodes} nodes of {per_node} NPUs hold {nodes * per_node}, expected room for {npus} NPUs",
            )
    limit = 2**63 - 1
    latency = truncate(
        document, warnings, ("remote-mem-latency",), data.get("remote-mem-latency", 0), 0, limit
    )
    bandwidth = truncate(document, warnings, ("remote-mem-bw",), data.get("remote-mem-bw", 0), 0, limit)
    if bandwidth == 0:
        warnings.append(f"{document.name}: remote-mem-bw of 0 means infinite bandwidth")
    return RemoteMemory(kind, latency, bandwidth, per_node)


def _read_groups(source: Source | None, npus: int, warnings: list[str]) -> dict[int, tuple[int, ...]]:
    if source is None:
        return {}
    # That program tests for the word before it opens the file, even if the word is in a folder's name.
    if not isinstance(source, Mapping) and "empty" in str(source):
        if is_there(source):
            warnings.append(
                f"{source}: not read: a name that contains 'empty' means no groups, as in ASTRA-sim"
            )
        return {}
    document = read_document(source, "communicator-group configuration", "json")
    # JSON keeps the last of two equal keys without a word, and a group would be lost.
    if document.duplicates:
        raise document.error((document.duplicates[0],), "group given twice")
    return read_groups(document, (), document.data, npus)
