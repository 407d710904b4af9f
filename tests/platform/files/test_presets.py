"""Presets: each number has a source or says that it has none, all simulate, and studies can change them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
import yaml

import armillary
from armillary.base.errors import InputError
from armillary.base.units import parse_flops
from armillary.compute.gpu.device import load_gpu
from armillary.explore.training.software import NAMES
from armillary.platform import load_platform, load_study
from armillary.platform.files.preset import device_names, leaves, preset_names, read_preset
from armillary.platform.files.study_schema import PlatformFile
from armillary.platform.topology import read_topology
from armillary.report.lower_bound import bound
from armillary.trace import CollectiveType, GraphBuilder, Trace

NAMED = {
    *("hgx-h100", "dgx-superpod-h100", "tpuv4-pod", "dojo-exapod", "zionex", "hls-1", "cerebras-wse-2"),
    *("cerebras-swarmx", "wormhole-galaxy", "aurora", "mi250", "mi300x"),
}
FABRICS = {name for name in preset_names() if "topology" in read_preset(name).document.data["platform"]}
"""Of a fixed size, and too large to be simulated whole: see test_fabrics.py."""
WORK = "workload: {collective: all-reduce, size: 1 GiB}\n"


def study(folder: Path, platform: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(f"{WORK}platform: {platform}\n")
    return path


def test_the_systems_of_the_slides_are_there() -> None:
    assert set(preset_names()) >= NAMED


@pytest.mark.parametrize("name", sorted(set(preset_names()) - NAMED - FABRICS))
def test_machines_that_grow_say_what_trains_on_them(name: str) -> None:
    preset = read_preset(name)
    assert preset.software in NAMES and preset.scale["device"] in device_names()
    assert preset.document.data["platform"]["compute"]["model"] == "gpu"


@pytest.mark.parametrize("name", preset_names())
def test_peaks_are_those_of_the_kernels(name: str) -> None:
    """A peak of another kind, such as TF32 for fp32, would give an MFU that no kernel can reach."""
    platform = read_preset(name).document.data["platform"]
    peaks = platform["npu"].get("peak")
    if "compute" not in platform or not isinstance(peaks, dict):
        pytest.skip("states no peaks by precision, or no kernels")
    device = load_gpu(platform["compute"]["device"])
    stated = {precision: parse_flops(peak) for precision, peak in peaks.items()}
    # Data sheets of one device round differently, and those of two servers may count its fp4 by other clocks.
    assert stated == pytest.approx({precision: device.peaks[precision] for precision in stated}, rel=0.05)


@pytest.mark.parametrize("name", preset_names())
def test_memory_is_what_programs_find_on_the_device(name: str) -> None:
    platform = load_platform(name)
    if platform.compute.model != "gpu":
        pytest.skip("names no device")
    assert platform.npu.memory.capacity == load_gpu(str(platform.compute.options["device"])).capacity > 0


@pytest.mark.parametrize("name", preset_names())
def test_every_number_says_where_it_comes_from(name: str) -> None:
    preset = read_preset(name)
    data = preset.document.data
    assert set(data) <= {"title", "platform", "topology", "notes", "numbers", "scale", "software"}
    between = {"network": [preset.scale["between"]]} if preset.scale else {}
    named = {key for part in (data["platform"], between) for key, _ in leaves(part)}
    assert {number.key for number in preset.numbers} == named
    for entry in data["numbers"].values():
        assert set(entry) in ({"source", "says"}, {"unverified", "says"}) and entry["says"]
        assert (
            re.match(r"https://\S+\.\S+", entry["source"])
            if "source" in entry
            else entry["unverified"] is True
        )


ONE_AFTER_THE_OTHER = {
    *("aurora", "cerebras-wse-2", "dojo-exapod", "tpuv4-pod", "wormhole-galaxy"),
    *("tpu-v5p-pod", "tpu-v6e-pod", "tpu-v7-pod"),
}
"""An all-reduce could use all dimensions at a time here: chunk_order themis takes 7.35 ms of 20.1 on tpuv4-pod."""


@pytest.mark.parametrize("name", sorted(set(preset_names()) - FABRICS))
def test_every_preset_simulates_and_keeps_its_bound(name: str) -> None:
    platform = load_platform(name)
    builder = GraphBuilder()
    builder.collective("all-reduce", CollectiveType.ALL_REDUCE, 1 << 30)
    result = armillary.simulate(Trace.replicate(builder.graph(name), ranks=platform.npus), platform)
    least = bound(result)
    # A fit is what was measured: 69 % of NVLink in a domain of 72, 58 % of the NICs of 16 nodes of A100 over RoCE.
    share = 0.2 if name in ONE_AFTER_THE_OTHER else 0.55 if platform.collectives.fit else 0.7
    assert share * result.total_ticks < least.ticks <= result.total_ticks


@pytest.mark.parametrize("name", [name for name in preset_names() if read_preset(name).topology])
def test_the_graph_agrees_with_the_platform(name: str) -> None:
    preset, platform = read_preset(name), load_platform(name)
    graph = read_topology(preset.document, ("topology",), preset.topology).topology
    assert graph.npus == platform.npus
    used = {rate for dimension in platform.dimensions for rate in (dimension.bandwidth, dimension.latency)}
    assert used & set(graph.bandwidth.tolist()) and set(graph.latency.tolist()) <= used


def test_a_study_changes_a_preset(tmp_path: Path) -> None:
    text = """
  preset: dgx-superpod-h100
  network: {rail: {size: 4, bandwidth: 25 GB/s}}
  npu: {peak: {bf16: 900 TFLOP/s}, memory: {capacity: 94 GB}}
  scheduling: fifo"""
    plan = load_study(study(tmp_path, text)).platform
    node, rail = plan.dimensions
    assert (node.size, node.bandwidth, rail.size, rail.bandwidth, rail.latency) == (8, 450.0, 4, 25.0, 500.0)
    assert plan.npu.peaks == {"bf16": 900e12, "fp8": 1979e12}
    assert plan.npu.memory.bytes_per_s == 3.35e12 and plan.npu.memory.capacity == 94 * 10**9
    assert plan.scheduling == "fifo"
    assert [w for w in plan.warnings if "preset" in w] == [
        "preset dgx-superpod-h100: 1 of 10 numbers are unverified: network.rail.latency",
        "preset dgx-superpod-h100: kernels take a roofline at 100 % of the peaks, not what was measured of h100-sxm: "
        "npu.peak given",
        "preset dgx-superpod-h100: collectives take the network's bandwidths and latencies, not fit h100-sxm: "
        "network.rail.bandwidth given",
    ]


@pytest.mark.parametrize(
    ("keys", "model", "fit"),
    (
        ("", "gpu", "h100-sxm"),
        ("network: {nvlink: {size: 4}}", "gpu", "h100-sxm"),
        ("collectives: {fit: a100-sxm}, network_model: analytical", "gpu", "a100-sxm"),
        ("compute: {factors: {gemm: 1.1}}", "gpu", "h100-sxm"),
        ("compute: {roofline: true}", "roofline", "h100-sxm"),
        ("compute: {efficiency: 50 %}", "roofline", "h100-sxm"),
        ("compute: {model: gpu, device: b200}, npu: {peak: 1 PFLOP/s}", "gpu", "h100-sxm"),
        ("npu: {memory: {bandwidth: 5 TB/s}}", "roofline", "h100-sxm"),
        ("npu: {memory: {capacity: 90 GB}}", "gpu", "h100-sxm"),
        ("network: {nvlink: {bandwidth: 1 TB/s}}", "gpu", None),
        ("collectives: {all-reduce: ring}", "gpu", None),
        ("network_model: packet", "gpu", None),
    ),
)
def test_what_was_measured_gives_way_to_what_is_asked_for(keys: str, model: str, fit: str | None) -> None:
    platform = load_platform(yaml.safe_load(f"{{preset: hgx-h100, {keys}}}"))
    chosen = platform.collectives.fit
    assert (platform.compute.model, chosen.name if chosen else None) == (model, fit)


def test_a_fit_that_nobody_asked_for_gives_way_to_messages() -> None:
    builder = GraphBuilder()
    builder.collective("all-reduce", CollectiveType.ALL_REDUCE, 1 << 20)
    trace = Trace.replicate(builder.graph("one"), ranks=8)
    found = armillary.simulate(trace, "hgx-h100", network_model="flow")
    assert any("not fit h100-sxm" in warning for warning in found.info["warnings"])
    asked = {"preset": "hgx-h100", "collectives": {"fit": "h100-sxm"}}
    with pytest.raises(
        InputError, match=r"collectives.fit has no effect in profile physical with network model flow"
    ):
        armillary.simulate(trace, asked, network_model="flow")


def test_a_given_number_is_no_longer_unverified(tmp_path: Path) -> None:
    plan = load_study(study(tmp_path, "{preset: mi300x, network: {xgmi: {latency: 700 ns}}}")).platform
    assert plan.warnings == ()


def test_a_list_replaces_the_network(tmp_path: Path) -> None:
    text = (
        "{preset: hgx-h100, network: [{name: a, topology: Ring, size: 3, bandwidth: 1 GB/s, latency: 1 ns}]}"
    )
    assert [d.name for d in load_study(study(tmp_path, text)).platform.dimensions] == ["a"]


def test_a_shape_takes_the_place_of_a_size(tmp_path: Path) -> None:
    text = "{preset: tpuv4-pod, network: {ici: {shape: [4, 8]}}}"
    assert [d.size for d in load_study(study(tmp_path, text)).platform.dimensions] == [4, 8]
    text = "{preset: tpuv4-pod, network: {ici: {size: 4}}}"
    assert [d.size for d in load_study(study(tmp_path, text)).platform.dimensions] == [4]


def test_a_file_wins_over_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hgx-h100").write_text("network: [{topology: Ring, size: 5, bandwidth: 1 GB/s, latency: 1 ns}]")
    assert load_platform("hgx-h100").npus == 5


@pytest.mark.parametrize(
    ("platform", "message"),
    (
        (
            "{preset: hgx-h10}",
            r"study.yaml:2: platform.preset: got 'hgx-h10', .* \(did you mean 'hgx-h100'\?\)",
        ),
        (
            "{preset: hgx-h100, network: {nvlnk: {size: 4}}}",
            r"did you mean 'nvlink'\?\); it has nvlink",
        ),
        ("{preset: hgx-h100, network: {nvlink: 4}}", "got 4, expected a mapping of keys to values"),
        (
            "{preset: hgx-h100, network: {nvlink: {sise: 4}}}",
            r"study.yaml:2: .*unknown key \(did you mean 'size'\?\)",
        ),
        (
            "{preset: hgx-h100, topology: {kind: hypercube}}",
            "preset hgx-h100 has a network, expected no topology",
        ),
        ("{npu: {}}", "missing key 'network' in platform"),
    ),
)
def test_errors_of_presets(tmp_path: Path, platform: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_study(study(tmp_path, platform))


def test_neither_file_nor_preset() -> None:
    with pytest.raises(
        InputError, match=r"tpuv4-pot: neither a file nor a preset \(did you mean 'tpuv4-pod'\?\)"
    ):
        load_platform("tpuv4-pot")


_ODD = [
    5, -1, 1e300, "x", None, True, [], {}, [[1]], [{"size": 2}], [{"kind": "gemm", "factor": 2}], {"a": {"b": 1}},
    {"nvlink": 3}, {"nvlink": {"size": 0}}, [{"name": 3}], "hgx-h100", {1: 2}, [None],
]  # fmt: skip


@pytest.mark.parametrize("key", list(PlatformFile.model_fields))
@pytest.mark.parametrize("memory", ["", "cxl-pool"])
def test_a_preset_and_any_key_is_a_machine_or_refused(key: str, memory: str) -> None:
    for value in _ODD:
        given = {
            "preset": "hgx-h100",
            **({"remote_memory": {"preset": memory}} if memory else {}),
            key: value,
        }
        with contextlib.suppress(InputError):
            load_platform(given)


def test_overrides_stand_beside_a_preset() -> None:
    overrides = [{"kind": "gemm", "factor": 2}, {"name": "*.attend", "duration": "3 us"}]
    platform = load_platform({"preset": "hgx-h100", "compute": {"overrides": overrides}})
    assert [each.factor for each in platform.compute.overrides] == [2, None]


def test_devices_that_are_counted_are_those_that_presets_say() -> None:
    """Names are found without parsing whole presets."""
    folder = Path(armillary.__file__).parent / "platform" / "files" / "presets"
    said = {
        name: yaml.safe_load((folder / f"{name}.yaml").read_text()).get("scale") for name in preset_names()
    }
    assert dict(device_names()) == {scale["device"]: name for name, scale in said.items() if scale}
