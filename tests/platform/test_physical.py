"""What native files say to profile ``physical``, and what either profile refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.platform import (
    Algorithm,
    Collectives,
    Compute,
    Dimension,
    Jitter,
    Kernels,
    LocalMemory,
    Npu,
    Platform,
    Port,
    SharedBus,
    astra_sim_view,
    describe,
    load_platform,
    load_study,
    physical_view,
    ports,
    read_platform,
    table,
)
from armillary.platform.profiles import astra_sim_algorithms, astra_sim_endpoint_delay

STUDY = """\
workload: {collective: broadcast, size: 1 GiB}
profile: physical
platform:
  network:
    - {name: node, topology: FullyConnected, size: 3, bandwidth: 60 GB/s, latency: 500 ns}
    - {name: rack, topology: Torus, shape: [4, 2], bandwidth: {up: 50 GB/s, down: 25 GB/s}, latency: 1 us}
    - {name: row, topology: Mesh, size: 2, bandwidth: 10 GB/s, per: link, latency: 1 us}
  npu:
    peak: {bf16: 1 TFLOP/s, fp8: 2 TFLOP/s}
    memory: {bandwidth: 2 TB/s, capacity: 80 GB}
    speed: {3: 0.8}
  compute: {roofline: true, efficiency: {compute: 45 %, memory: 80 %}, kernel_overhead: 2 us}
  collectives: {all-reduce: [direct, auto, ring, rabenseifner], all-gather: auto, broadcast: natural, chunks: 8}
  scheduling: fifo
  stragglers: {5: 2 ms, 6: 1 us}
  jitter: {sigma: 5 %, seed: 7}
"""
ONE = "platform: {network: [{topology: Ring, size: 4, bandwidth: 8 GB/s, latency: 1 ns}]}\n"
SYSTEM: dict[str, Any] = {"preferred-dataset-splits": 4, "local-mem-bw": 50}
NETWORK = {
    "topology": ["Ring", "FullyConnected"],
    "npus_count": [4, 5],
    "bandwidth": [1, 1],
    "latency": [1, 1],
}


def write(folder: Path, text: str) -> Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def test_everything_physical(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, STUDY))
    platform = study.platform
    assert study.profile == "physical"
    assert platform.dimensions == (
        Dimension("node", "FullyConnected", 3, 30.0, 500.0, Port(60.0, 60.0)),
        Dimension("rack.0", "Torus", 4, 12.5, 1000.0, Port(50.0, 25.0)),
        Dimension("rack.1", "Torus", 2, 12.5, 1000.0, Port(50.0, 25.0)),
        Dimension("row", "Mesh", 2, 10.0, 1000.0, Port(20.0, 20.0)),
    )
    assert (platform.scheduling, platform.stragglers) == ("fifo", {5: 2e6, 6: 1e3})
    assert platform.npu == Npu({"bf16": 1e12, "fp8": 2e12}, LocalMemory(2000.0, 80 * 10**9), speed={3: 0.8})
    assert platform.compute == Compute("roofline", kernels=Kernels(0.45, 0.8, 2000))
    assert platform.collectives == Collectives(
        {
            "all-reduce": ("direct", "auto", "ring", "rabenseifner"),
            "all-gather": ("auto",) * 4,
            "broadcast": ("natural",) * 4,
        },
        chunks=8,
    )
    assert platform.jitter == Jitter(0.05, 7)
    assert astra_sim_algorithms(platform, "all-reduce") == tuple(
        map(Algorithm, ("direct", "ring", "ring", "ring"))
    )
    assert platform.warnings == ()
    assert physical_view(platform) == platform


def test_physical_is_the_default_and_per_npu(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, "workload: {trace: t}\n" + ONE))
    assert study.profile == "physical"
    assert (study.platform.dimensions[0].bandwidth, ports(study.platform)) == (4.0, (Port(8.0, 8.0),))
    assert (study.platform.npu.message_delay, astra_sim_endpoint_delay(study.platform)) == (0, 10)
    assert load_platform(tmp_path / "study.yaml") == study.platform


def test_astra_sim_is_per_link(tmp_path: Path) -> None:
    link = load_platform(write(tmp_path, "profile: astra-sim\n" + ONE))
    assert (link.dimensions[0].bandwidth, ports(link)) == (8.0, (Port(16.0, 16.0),))
    stated = ONE.replace("8 GB/s", "16 GB/s, per: npu")
    assert load_platform(write(tmp_path, "profile: astra-sim\n" + stated)).dimensions == link.dimensions
    stated = ONE.replace("8 GB/s", "8 GB/s, per: link")
    assert load_platform(write(tmp_path, stated)).dimensions == link.dimensions


@pytest.mark.parametrize(
    ("topology", "links"), [("Ring", 2), ("Torus", 2), ("Mesh", 2), ("FullyConnected", 4), ("Switch", 1)]
)
def test_ports_follow_from_links(topology: Any, links: int) -> None:
    dimension = Dimension("d", topology, 5, 10.0, 1.0)
    assert ports(Platform((dimension, replace(dimension, port=Port(1.0, 2.0))))) == (
        Port(10.0 * links, 10.0 * links),
        Port(1.0, 2.0),
    )


def test_a_torus_is_a_ring_in_profile_astra_sim(tmp_path: Path) -> None:
    text = ONE.replace("Ring", "Torus").replace("size: 4", "shape: [4, 2]")
    view = astra_sim_view(load_platform(write(tmp_path, "profile: astra-sim\n" + text)))
    assert [(d.name, d.topology, d.size) for d in view.dimensions] == [
        ("dim0.0", "Ring", 4),
        ("dim0.1", "Ring", 2),
    ]


def test_endpoint_delay_counts_in_both_profiles(tmp_path: Path) -> None:
    text = ONE.replace("platform: {", "platform: {npu: {endpoint_delay: 7 ns}, ")
    platform = load_platform(write(tmp_path, text))
    assert (platform.npu.message_delay, astra_sim_endpoint_delay(platform)) == (7, 7)


def test_astra_sim_files_under_physical() -> None:
    system = {**SYSTEM, "scheduling-policy": "LIFO", "all-reduce-implementation": ["ring", "direct"]}
    platform = read_platform(system, NETWORK)
    assert platform.scheduling == "lifo"
    assert platform.collectives == Collectives({"all-reduce": ("ring", "direct")}, 4, active_chunks=1)
    gib = 2**30 / 10**9
    assert ports(platform) == (Port(2 * gib, 2 * gib), Port(4 * gib, 4 * gib))
    assert read_platform({**SYSTEM, "endpoint-delay": 3}, NETWORK).npu.message_delay == 3
    assert astra_sim_view(platform) == platform
    assert physical_view(platform) == replace(
        platform, collectives=replace(platform.collectives, active_chunks=0)
    )


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["ring"], "all-reduce: lists 1 algorithms, expected 2, one per network dimension"),
        (["oneRing"], "all-reduce: got 'oneRing': profile physical does not model this"),
        (["ring", "direct2"], "all-reduce: got 'direct2': profile physical does not model this"),
    ],
)
def test_physical_refuses_algorithms(names: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        physical_view(read_platform({**SYSTEM, "all-reduce-implementation": names}, NETWORK))


def test_physical_refuses_the_shared_bus() -> None:
    platform = read_platform({**SYSTEM, "model-shared-bus": 1}, NETWORK)
    assert platform.astra_sim.shared_bus == SharedBus(0, 0, 0, 0.0)
    with pytest.raises(InputError, match="model-shared-bus: profile physical does not model this"):
        physical_view(platform)


CONFLICTS = [
    ("latency: 1 ns}]", "latency: 1 ns}], jitter: {sigma: 5 %}", "platform.jitter"),
    ("latency: 1 ns}]", "latency: 1 ns}], scheduling: lifo", "platform.scheduling: got 'lifo'"),
    ("latency: 1 ns}]", "latency: 1 ns}], stragglers: {0: 1 ns}", "platform.stragglers"),
    ("latency: 1 ns}]", "latency: 1 ns}], npu: {speed: {0: 2}}", "platform.npu.speed"),
    ("latency: 1 ns}]", "latency: 1 ns}], npu: {peak: {bf16: 1 TFLOP/s}}", "platform.npu.peak"),
    ("latency: 1 ns}]", "latency: 1 ns}], compute: {efficiency: 45 %}", "platform.compute.efficiency"),
    (
        "latency: 1 ns}]",
        "latency: 1 ns}], compute: {kernel_overhead: 1 us}",
        "platform.compute.kernel_overhead",
    ),
    ("latency: 1 ns}]", "latency: 1 ns}], collectives: {barrier: ring}", "platform.collectives.barrier"),
    (
        "latency: 1 ns}]",
        "latency: 1 ns}], collectives: {all-reduce: auto}",
        "platform.collectives.all-reduce: got 'auto'",
    ),
    ("Ring", "Mesh", "platform.network[0].topology: got 'Mesh'"),
    ("8 GB/s", "{up: 8 GB/s, down: 9 GB/s}", "platform.network[0].bandwidth: up and down differ"),
]


@pytest.mark.parametrize(("part", "replacement", "problem"), CONFLICTS)
def test_astra_sim_refuses(tmp_path: Path, part: str, replacement: str, problem: str) -> None:
    """In the file with its line; where the profile is chosen later, with the name of the dimension."""
    text = ONE.replace(part, replacement)
    file = write(tmp_path, "profile: astra-sim\n" + text)
    with pytest.raises(InputError) as error:
        load_platform(file)
    assert str(error.value).startswith(f"{file}:2: {problem}")
    assert str(error.value).endswith(": profile astra-sim does not model this, profile physical does")
    platform = load_platform(write(tmp_path, text))
    with pytest.raises(InputError) as error:
        astra_sim_view(platform)
    expected = problem.removeprefix("platform.").replace("[0]", ".dim0")
    assert str(error.value).startswith(f"{file}: {expected}")


def test_a_workload_that_astra_sim_lacks(tmp_path: Path) -> None:
    text = "profile: astra-sim\nworkload: {collective: broadcast, size: 1 B}\n"
    with pytest.raises(
        InputError, match=r":2: workload.collective: got 'broadcast': profile astra-sim does not"
    ):
        load_study(write(tmp_path, text + ONE))


def test_description_and_table(tmp_path: Path) -> None:
    from rich.console import Console

    platform = load_platform(write(tmp_path, STUDY))
    values = describe(platform)
    rack = values["dimensions"][1]
    assert (rack["npu_bandwidth_bytes_per_s"], rack["npu_bandwidth_in_bytes_per_s"]) == (50e9, 25e9)
    assert values["algorithms"]["broadcast"] == ["natural"] * 4
    assert values["physical"] == {
        "scheduling": "fifo",
        "algorithms": {kind: list(names) for kind, names in platform.collectives.algorithms.items()},
        "endpoint_delay_ns": 0,
        "speed": {"3": 0.8},
        "stragglers_ns": {"5": 2e6, "6": 1e3},
        "jitter": {"sigma": 0.05, "seed": 7},
        "variation": None,
        "compute_efficiency": 0.45,
        "memory_efficiency": 0.8,
        "kernel_overhead_ns": 2000,
        "collective_fit": None,
        "terms": {},
    }
    assert values["peak_flops_by_precision"] == {"bf16": 1e12, "fp8": 2e12}
    assert values["local_memory_capacity_bytes"] == 80 * 10**9
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table(platform))
    text = capture.get()
    for expected in (
        "50 GB/s up, 25 GB/s down",
        "0 ns in physical, 10 ns in astra-sim",
        "fifo, in physical",
        "rank 3: x 0.8",
        "2 ranks, 1 µs to 2 ms",
        "5 %, seed 7",
        "bf16 1 TFLOP/s, fp8 2 TFLOP/s",
        "2 TB/s, 74.51 GiB",
        "45 % of the peak, 80 % of memory bandwidth, in physical",
        "2 µs, in physical",
    ):
        assert expected in text


MISTAKES = [
    ("{3: 0.8}", "{3: 0}", "platform.npu.speed[3]: got 0, expected more than 0"),
    ("{3: 0.8}", "{3: -1}", "platform.npu.speed[3]: got -1, expected"),
    ("{3: 0.8}", "{3: .nan}", "platform.npu.speed[3]: got nan, expected"),
    ("{3: 0.8}", "{3: .inf}", "platform.npu.speed[3]: got inf, expected"),
    ("{3: 0.8}", "{3: slow}", "platform.npu.speed[3]: got 'slow', expected"),
    ("{3: 0.8}", "{48: 0.8}", "platform.npu.speed[48]: got 48, expected a rank from 0 to 47"),
    ("{3: 0.8}", "{-1: 0.8}", "platform.npu.speed[-1]: got -1, expected a rank"),
    ("{3: 0.8}", "{a: 0.8}", "platform.npu.speed.a: got 'a', expected a rank"),
    ("{3: 0.8}", "{true: 0.8}", "got True, expected a rank"),
    ("{3: 0.8}", "0.8", "platform.npu.speed: got 0.8, expected a mapping of rank to value"),
    ("speed: {", "sped: {", "platform.npu.sped: unknown key (did you mean 'speed'?)"),
    ("5: 2 ms", "5: 2", "platform.stragglers[5]: got 2, expected a time with a unit"),
    ("5: 2 ms", "5: -2 ms", "platform.stragglers[5]: got '-2 ms', which is negative"),
    ("5: 2 ms", "5: nan ms", "platform.stragglers[5]: got 'nan ms', expected a time"),
    ("5: 2 ms", "50: 2 ms", "platform.stragglers[50]: got 50, expected a rank from 0 to 47"),
    ("stragglers:", "straglers:", "platform.straglers: unknown key (did you mean 'stragglers'?)"),
    ("45 %", "145 %", "platform.compute.efficiency.compute: got '145 %', expected at most 100 %"),
    ("45 %", "0 %", "platform.compute.efficiency.compute: got '0 %', expected more than 0"),
    (
        "{compute: 45 %, memory: 80 %}",
        "80",
        "platform.compute.efficiency: got 80, expected a percentage with a unit",
    ),
    ("{compute: 45 %", "{comput: 45 %", "efficiency.comput: unknown key (did you mean 'compute'?)"),
    ("bf16: 1 TFLOP/s, ", "", "missing key 'bf16' in platform.npu.peak"),
    ("fp8:", "fp9:", "platform.npu.peak.fp9: unknown key (did you mean 'fp8'?)"),
    ("80 GB}", "80}", "platform.npu.memory.capacity: got 80, expected a size with a unit"),
    (
        "sigma: 5 %",
        "sigma: 0.05",
        "platform.jitter.sigma: got 0.05, expected a percentage with a unit, e.g. '5 %'",
    ),
    ("sigma: 5 %", "sigma: 0 %", "platform.jitter.sigma: got '0 %', expected more than 0"),
    ("sigma: 5 %", "sigma: -5 %", "platform.jitter.sigma: got '-5 %', which is negative"),
    ("sigma: 5 %", "sigma: 101 %", "platform.jitter.sigma: got '101 %', expected at most 100 %"),
    ("seed: 7", "seed: -7", "platform.jitter.seed: got -7, expected 0 or more"),
    ("seed: 7", "seed: 1.5", "platform.jitter.seed: got 1.5, expected a whole number"),
    ("sigma: 5 %, ", "", "missing key 'sigma' in platform.jitter"),
    ("seed: 7", "sed: 7", "platform.jitter.sed: unknown key (did you mean 'seed'?)"),
    (
        "fifo",
        "fifi",
        "platform.scheduling: got 'fifi', expected one of fair, fifo, lifo, priority (did you mean",
    ),
    ("[4, 2]", "[4, 1]", "platform.network[1].shape[1]: got 1, expected 2 or more"),
    ("[4, 2]", "[]", "platform.network[1].shape: got [], expected at least one entry"),
    ("[4, 2]", "4", "platform.network[1].shape: got 4, expected a list"),
    (
        "[4, 2]",
        str([2] * 31),
        "platform.network[1].shape: got [2, 2, 2, 2, 2, 2, ...], expected at most 30 entries",
    ),
    ("[4, 2]", str([2] * 30), "platform.network: has 6442450944 NPUs in all, expected at most 2147483647"),
    (
        "shape: [4, 2]",
        "shape: [4, 2], size: 8",
        "platform.network[1]: expected either size or shape, not both",
    ),
    ("shape: [4, 2], ", "", "missing key 'size' in platform.network[1]"),
    (
        "size: 3",
        "shape: [3]",
        "platform.network[0]: got a shape for topology 'FullyConnected', expected it for",
    ),
    ("name: row", "name: rack.1", "study.yaml:7: platform.network[2].name: name 'rack.1' is used twice"),
    ("per: link", "per: wire", "platform.network[2].per: got 'wire', expected one of npu, link"),
    ("per: link", "pre: link", "platform.network[2].pre: unknown key (did you mean 'per'?)"),
    ("down: 25 GB/s", "down: 25", "platform.network[1].bandwidth.down: got 25, expected a bandwidth"),
    (
        "down: 25 GB/s",
        "down: 0 GB/s",
        "platform.network[1].bandwidth.down: got '0 GB/s', expected more than 0",
    ),
    (
        "down: 25 GB/s",
        "dwn: 25 GB/s",
        "platform.network[1].bandwidth.dwn: unknown key (did you mean 'down'?)",
    ),
    (", down: 25 GB/s", "", "study.yaml:6: missing key 'down' in platform.network[1].bandwidth"),
    (
        "{up: 50 GB/s, down: 25 GB/s}",
        "[50 GB/s]",
        "platform.network[1].bandwidth: got ['50 GB/s'], expected a",
    ),
    (
        "rabenseifner]",
        "rabensaifner]",
        "platform.collectives.all-reduce[3]: got 'rabensaifner', expected an algo",
    ),
    (
        "direct, auto,",
        "",
        "platform.collectives.all-reduce: lists 2 algorithms, expected 4, one per network dimen",
    ),
    (
        "broadcast: natural",
        "brodcast: natural",
        "platform.collectives.brodcast: unknown key (did you mean 'broa",
    ),
    ("collective: broadcast", "collective: brodcast", "workload.collective: got 'brodcast', expected one of"),
]


@pytest.mark.parametrize(("part", "replacement", "fragment"), MISTAKES)
def test_mistakes(tmp_path: Path, part: str, replacement: str, fragment: str) -> None:
    assert part in STUDY
    with pytest.raises(InputError) as error:
        load_study(write(tmp_path, STUDY.replace(part, replacement, 1)))
    message = str(error.value)
    assert fragment in message
    assert "\n" not in message
