"""ASTRA-sim's own configuration files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from armillary.platform import Algorithm, Dimension, RemoteMemory, SharedBus, read_platform
from armillary.platform.profiles import astra_sim_algorithms, astra_sim_endpoint_delay

SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "localBWAware",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "local-mem-bw": 1600,
    "all-reduce-implementation": ["ring", "direct12"],
}
NETWORK = {
    "topology": ["Ring", "Switch"],
    "npus_count": [4, 2],
    "bandwidth": [50.0, 12.5],
    "latency": [500.0, 936.25],
}
ORACLE_GROUPS = (
    "1d active casestudy coll1d dag knobs mdsmall mem multid params rendezvous roofline scale scale_clean "
    "sharedbus subgroup subgroup-strided themis workload worldgroup"
)


def test_values_and_their_units() -> None:
    platform = read_platform(SYSTEM, NETWORK)
    assert platform.dialect == "astra-sim"
    assert platform.npus == 8
    assert platform.dimensions == (
        Dimension("dim0", "Ring", 4, 50.0 * 2**30 / 10**9, 500.0),
        Dimension("dim1", "Switch", 2, 12.5 * 2**30 / 10**9, 936.25),
    )
    assert platform.npu.memory.bytes_per_s == 1600e9
    assert platform.collectives.chunks == 4
    assert platform.astra_sim.collective_optimization == "localBWAware"
    assert platform.collectives.algorithms == {"all-reduce": ("ring", "direct12")}
    assert astra_sim_algorithms(platform, "all-reduce") == (Algorithm("ring"), Algorithm("direct", 12))
    assert astra_sim_algorithms(platform, "all-gather") == ()
    assert platform.warnings == ()
    assert (platform.astra_sim.queues_per_dim, platform.astra_sim.rendezvous) == (1, False)


@pytest.mark.parametrize(
    ("cli", "delay", "queues", "rendezvous"),
    [
        ((), 10, 1, False),
        (("--injection-scale=2.55",), 25, 1, False),
        (("--num-queues-per-dim", "2", "--rendezvous-protocol", "true"), 10, 2, True),
        (("--rendezvous-protocol", "--num-queues-per-dim=3"), 10, 3, True),
        (("--rendezvous-protocol=false", "--logging-folder=log"), 10, 1, False),
    ],
)
def test_flags(cli: tuple[str, ...], delay: int, queues: int, rendezvous: bool) -> None:
    platform = read_platform(SYSTEM, NETWORK, cli=cli)
    own = platform.astra_sim
    found = (astra_sim_endpoint_delay(platform), own.queues_per_dim, own.rendezvous)
    assert found == (delay, queues, rendezvous)


def test_a_missing_endpoint_delay_is_not_scaled() -> None:
    system = {key: value for key, value in SYSTEM.items() if key != "endpoint-delay"}
    platform = read_platform(system, NETWORK, cli=["--injection-scale=3"])
    assert astra_sim_endpoint_delay(platform) == 10


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"boost-mode": 0}, "keys known but without effect: boost-mode"),
        ({"L": 1, "G": 0.5}, "L, G have no effect without model-shared-bus: 1"),
        ({"local-mem-bw": 0}, "no local-mem-bw: reductions cost no time"),
        ({"scheduling-policy": None}, "no scheduling-policy: FIFO is used"),
        ({"collective-optimization": None}, "no collective-optimization: baseline is used"),
        (
            {"all-reduce-implementation": ["ring"]},
            "fewer algorithms than the 2 network dimensions: all-reduce",
        ),
        ({"endpoint-delay": 10.7}, "endpoint-delay: 10.7 is cut to 10"),
        ({"roofline-enabled": 1}, "roofline-enabled without peak-perf"),
    ],
)
def test_odd_but_accepted_system(change: dict[str, object], warning: str) -> None:
    system = {key: value for key, value in {**SYSTEM, **change}.items() if value is not None}
    warnings = read_platform(system, NETWORK).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith(f"system configuration: {warning}")


def test_one_ring_over_all_dimensions_is_not_odd() -> None:
    assert read_platform({**SYSTEM, "all-reduce-implementation": ["oneRing"]}, NETWORK).warnings == ()


def test_a_fifth_dimension_is_warned_about() -> None:
    network = {
        "topology": ["Ring"] * 5,
        "npus_count": [2] * 5,
        "bandwidth": [1.0] * 5,
        "latency": [1.0] * 5,
    }
    warnings = read_platform({**SYSTEM, "all-reduce-implementation": ["ring"] * 5}, network).warnings
    assert "only the first 4" in warnings[0]


def test_shared_bus() -> None:
    bus = {"model-shared-bus": 1, "L": 10, "o": 5.9, "g": 7, "G": 0.01}
    assert read_platform({**SYSTEM, **bus}, NETWORK).astra_sim.shared_bus == SharedBus(10, 5, 7, 0.01)


@pytest.mark.parametrize(
    ("memory", "expected", "warnings"),
    [
        ({"memory-type": "NO_MEMORY_EXPANSION"}, RemoteMemory(), 0),
        (
            {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 12.5},
            RemoteMemory("pool", 100, 12),
            1,
        ),
        (
            {
                "memory-type": "PER_NODE_MEMORY_EXPANSION",
                "remote-mem-bw": 50,
                "num-nodes": 2,
                "num-npus-per-node": 4,
            },
            RemoteMemory("per-node", 0, 50, 4),
            0,
        ),
        ({"memory-type": "PER_NPU_MEMORY_EXPANSION"}, RemoteMemory("per-npu"), 1),
    ],
)
def test_remote_memory(memory: dict[str, object], expected: RemoteMemory, warnings: int) -> None:
    platform = read_platform(SYSTEM, NETWORK, memory)
    assert platform.remote_memory == expected
    assert len(platform.warnings) == warnings


def test_groups_keep_the_order_of_their_ranks() -> None:
    assert read_platform(SYSTEM, NETWORK, comm_groups={"3": [7, 0, 2]}).groups == {3: (7, 0, 2)}
    assert read_platform(SYSTEM, NETWORK, comm_groups="empty").groups == {}


def test_numbers_as_other_yaml_readers_see_them(tmp_path: Path) -> None:
    file = tmp_path / "net.yml"
    file.write_text("topology: [Ring]\nnpus_count: [4]\nbandwidth: [5e1]\nlatency: ['500']\n")
    dimension = read_platform({**SYSTEM, "all-reduce-implementation": ["ring"]}, file).dimensions[0]
    assert (dimension.bandwidth, dimension.latency) == (50.0 * 2**30 / 10**9, 500.0)


def test_custom_collectives_are_found_beside_the_system_file(tmp_path: Path) -> None:
    (tmp_path / "mine.0.et").touch()
    (tmp_path / "nodes.yml").write_text("17: mine\n18: elsewhere/x\n")
    custom = {
        "all-reduce-implementation-custom": ["mine"],
        "all-gather-implementation-custom": ["absent"],
        "per-node-custom-implementation": "nodes.yml",
    }
    file = tmp_path / "sys.json"
    file.write_text(json.dumps(SYSTEM | custom))
    system = read_platform(file, NETWORK).astra_sim
    assert system.custom == {"all-reduce": str(tmp_path / "mine"), "all-gather": "absent"}
    assert system.custom_by_node == {17: str(tmp_path / "mine"), 18: "elsewhere/x"}


def test_a_key_given_twice_counts_the_last_time(tmp_path: Path) -> None:
    file = tmp_path / "sys.json"
    file.write_text(json.dumps(SYSTEM)[:-1] + ', "endpoint-delay": 7}')
    platform = read_platform(file, NETWORK)
    assert platform.npu.endpoint_delay == 7
    assert platform.warnings == (f"{file}: endpoint-delay is given twice: the last one counts",)


@pytest.mark.shared
@pytest.mark.parametrize("system", ["Ring_4chunks", "HGX-H100-validated"])
@pytest.mark.parametrize("network", ["Ring_4npus", "Ring_8npus", "Ring_16npus", "HGX-H100-validated"])
def test_the_programs_own_examples(shared: Path, system: str, network: str) -> None:
    folder = shared / "traces/astra_examples/config"
    platform = read_platform(
        folder / f"{system}.json", str(folder / f"{network}.yml"), folder / "no_memory_expansion.json"
    )
    assert platform.npus in {4, 8, 16}
    assert set(platform.collectives.algorithms) == {
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
    }
    assert platform.warnings == (f"{folder / system}.json: keys known but without effect: boost-mode",)
    assert platform.source == folder / f"{system}.json"


@pytest.mark.shared
@pytest.mark.parametrize("group", ORACLE_GROUPS.split())
def test_every_accepted_configuration_of_the_oracle_is_read(shared: Path, group: str) -> None:
    with gzip.open(shared / f"oracle/{group}.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    accepted = [r for r in records if r["backend"] == "unaware" and r["outcome"] == "ok"]
    assert accepted
    for record in accepted:
        platform = read_platform(
            record["system"], record["network"], record["memory"], record["comm_groups"], record["cli"]
        )
        assert platform.npus == sum(count for _, count in record["finish"])
