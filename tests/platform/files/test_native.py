"""Native study and platform files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.platform import (
    Algorithm,
    Collective,
    Dimension,
    LocalMemory,
    Npu,
    Port,
    RemoteMemory,
    describe,
    json_schema,
    load_platform,
    load_study,
    table,
)
from armillary.platform.collectives import natural_algorithm
from armillary.platform.profiles import astra_sim_algorithms, astra_sim_endpoint_delay
from armillary.trace import GraphBuilder, Trace, write_trace

PLATFORM = """\
network:
  - {name: chiplet, topology: Ring, size: 2, bandwidth: 250 GB/s, latency: 500 ns}
  - {topology: FullyConnected, size: 8, bandwidth: 1600 Gb/s, latency: 0.5 us}
  - {topology: Switch, size: 6, bandwidth: 1 GiB/s, latency: 936.25 ns}
"""
FULL = """\
workload: {collective: all-reduce, size: 1 GiB}
profile: astra-sim
time_unit: ns
platform:
  network: [{topology: Ring, size: 4, bandwidth: 250 GB/s, latency: 500 ns}]
  npu: {peak: 312 TFLOP/s, memory: {bandwidth: 2039 GB/s}, endpoint_delay: 7 ns}
  collectives: {all-reduce: [direct4], all-gather: oneRing, optimization: baseline, chunks: 16,
                active_chunks: 2, queues: 3}
  remote_memory: {kind: per-node, bandwidth: 100 GB/s, latency: 1 us, npus_per_node: 2}
  groups: {1: [2, 0]}
  compute: {roofline: true}
  rendezvous: true
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def test_a_platform_alone(tmp_path: Path) -> None:
    platform = load_platform(write(tmp_path, PLATFORM))
    assert platform.dialect == "native"
    assert platform.dimensions == (
        Dimension("chiplet", "Ring", 2, 125.0, 500.0, Port(250.0, 250.0)),
        Dimension("dim1", "FullyConnected", 8, 200.0 / 7, 500.0, Port(200.0, 200.0)),
        Dimension("dim2", "Switch", 6, 2**30 / 10**9, 936.25, Port(2**30 / 10**9, 2**30 / 10**9)),
    )
    assert astra_sim_algorithms(platform, "all-reduce") == (
        Algorithm("ring"),
        Algorithm("direct"),
        Algorithm("ring"),
    )
    assert astra_sim_endpoint_delay(platform) == 10
    assert platform.warnings == (f"{tmp_path}/study.yaml: no npu.memory.bandwidth: reductions cost no time",)


def test_a_full_study(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, FULL))
    platform = study.platform
    assert (study.trace, study.collective) == (None, Collective("all-reduce", 2**30))
    assert (study.profile, study.path) == ("astra-sim", tmp_path / "study.yaml")
    assert platform.npu == Npu(312e12, LocalMemory(2039.0), 7)
    assert (platform.compute.model, platform.compute.replay) == ("roofline", False)
    assert (platform.collectives.chunks, platform.collectives.active_chunks) == (16, 2)
    assert (platform.astra_sim.queues_per_dim, platform.astra_sim.rendezvous) == (3, True)
    assert astra_sim_algorithms(platform, "all-reduce") == (Algorithm("direct", 4),)
    assert astra_sim_algorithms(platform, "all-gather") == (Algorithm("oneRing"),)
    assert platform.remote_memory == RemoteMemory("per-node", 1000, 100, 2)
    assert platform.groups == {1: (2, 0)}
    assert platform.warnings == ()
    assert load_platform(tmp_path / "study.yaml") == platform


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = "workload: {trace: traces/step}\nplatform:\n" + re.sub("(?m)^", "  ", PLATFORM)
    assert load_study(write(tmp_path, text)).trace == tmp_path / "traces/step"


@pytest.mark.parametrize(
    ("topology", "size", "kind", "name"),
    [
        ("Ring", 5, "all-reduce", "ring"),
        ("FullyConnected", 5, "all-gather", "direct"),
        ("Switch", 8, "all-reduce", "halvingDoubling"),
        ("Switch", 6, "all-reduce", "ring"),
        ("Switch", 8, "all-to-all", "direct"),
    ],
)
def test_natural_algorithms(topology, size: int, kind: str, name: str) -> None:
    assert natural_algorithm(kind, Dimension("d", topology, size, 1.0, 1.0)) == Algorithm(name)


def test_one_name_stands_for_all_dimensions(tmp_path: Path) -> None:
    text = PLATFORM + "collectives: {all-reduce: direct2}\n"
    assert (
        astra_sim_algorithms(load_platform(write(tmp_path, text)), "all-reduce")
        == (Algorithm("direct", 2),) * 3
    )


def test_json_schema_knows_every_key_and_its_units() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["required"] == ["platform"]
    assert schema["additionalProperties"] is False
    bandwidth = schema["$defs"]["NetworkDimension"]["properties"]["bandwidth"]
    bandwidth = next(way for way in bandwidth["oneOf"] if way.get("type") == "string")
    assert re.match(bandwidth["pattern"], "400 GB/s")
    assert not re.match(bandwidth["pattern"], "400")
    assert "all-to-all" in schema["$defs"]["Collectives"]["properties"]


def test_description_and_table(tmp_path: Path) -> None:
    from rich.console import Console

    platform = load_platform(write(tmp_path, PLATFORM))
    values = describe(platform)
    json.dumps(values)
    per_npu = [dimension["npu_bandwidth_bytes_per_s"] for dimension in values["dimensions"]]
    assert per_npu == [250e9, 200e9, 2**30]
    per_link = [dimension["link_bandwidth_bytes_per_s"] for dimension in values["dimensions"]]
    assert per_link == pytest.approx([125e9, 200e9 / 7, 2**30])
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table(platform))
    text = capture.get()
    for expected in (
        "96 NPUs",
        "FullyConnected",
        "28.57 GB/s",
        "936.2 ns",
        "ring, direct, ring",
        "warning: ",
    ):
        assert expected in text


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, armillary.platform as p; p.Platform; p.read_platform; "
        "print([m for m in ('pydantic', 'yaml', 'rich', 'numpy') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize("topology", ["Ring", "FullyConnected", "Switch", "Torus", "Mesh"])
def test_a_trace_of_one_rank_runs_on_one_npu(tmp_path: Path, topology: str) -> None:
    builder = GraphBuilder()
    summed = builder.all_reduce("sum", size="1 MiB", after=[builder.compute("first", duration_micros=10)])
    builder.compute("second", duration_micros=5, after=[summed])
    trace = Trace.replicate(builder.graph(), ranks=1)
    lone = f"network: [{{topology: {topology}, size: 1, bandwidth: 1 GB/s, latency: 1 us}}]\n"
    assert armillary.simulate(trace, load_platform(write(tmp_path, lone))).total_ticks == 15_000


def test_a_trace_of_one_rank_runs_with_the_files_of_astra_sim(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.all_reduce("sum", size="1 MiB", after=[builder.compute("first", duration_micros=10)])
    write_trace(tmp_path / "lone", Trace.replicate(builder.graph(), ranks=1))
    network = tmp_path / "network.yml"
    network.write_text("topology: [ Ring ]\nnpus_count: [ 1 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n")
    system = tmp_path / "system.json"
    system.write_text('{"all-reduce-implementation": ["ring"], "preferred-dataset-splits": 4}')
    for profile in ("astra-sim", "physical"):
        result = armillary.astra_sim.simulate(
            str(tmp_path / "lone"), str(system), str(network), profile=profile
        )
        assert result.total_ticks == 10_000


def test_a_dimension_of_one_npu_beside_others_is_refused(tmp_path: Path) -> None:
    ring = "{topology: Ring, size: %d, bandwidth: 1 GB/s, latency: 1 us}"
    with pytest.raises(InputError, match=r"network\[0\].size: got 1, expected 2 or more"):
        load_platform(write(tmp_path, f"network: [{ring % 1}, {ring % 4}]\n"))
