"""The ticks of ASTRA-sim on its own example files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import armillary

pytestmark = pytest.mark.shared

RING = {
    "all_gather": (64744, 151016, 323560),
    "all_reduce": (43000, 64440, 99640),
    "all_to_all": (41560, 125480, 391240),
    "reduce_scatter": (22240, 33080, 50740),
}
TEXT = {
    "Resnet50_DataParallel": (1082479776, 29776),
    "DLRM_HybridParallel": (51378000, 0),
    "MLP_ModelParallel": (195350188, 144188),
    "MLP_HybridParallel_Data_Model": (236822964, 173964),
    "MLP_HybridParallel_Model_Data": (236822964, 173964),
}


@pytest.fixture(scope="module")
def examples(shared: Path) -> Path:
    return shared / "traces" / "astra_examples"


def run(
    examples: Path, workload: Path, system: str | dict[str, Any], network: str, model: str = "analytical"
) -> armillary.Timeline:
    config = examples / "config"
    return armillary.astra_sim.simulate(
        workload,
        config / system if isinstance(system, str) else system,
        config / network,
        config / "no_memory_expansion.json",
        network_model=model,
    )


def example(examples: Path, name: str, npus: int) -> Path:
    return examples / name / f"{npus}npus_1MB" / name


@pytest.mark.parametrize("name", RING)
@pytest.mark.parametrize("npus", [4, 8, 16])
@pytest.mark.parametrize("model", ["analytical", "congestion"])
def test_microbenchmarks_on_a_ring(examples: Path, name: str, npus: int, model: str) -> None:
    timeline = run(
        examples, example(examples, name, npus), "Ring_4chunks.json", f"Ring_{npus}npus.yml", model
    )
    expected = RING[name][(4, 8, 16).index(npus)]
    assert timeline.finish_ticks.tolist() == [expected] * npus


@pytest.mark.parametrize(
    ("network", "model", "ticks"),
    [
        ("HGX-H100-validated.yml", "analytical", 55222),
        ("HGX-H100-validated.yml", "congestion", 57426),
        ("Ring_8npus.yml", "analytical", 31758),
        ("Ring_8npus.yml", "congestion", 34680),
    ],
)
def test_validated_server(examples: Path, network: str, model: str, ticks: int) -> None:
    timeline = run(examples, example(examples, "all_reduce", 8), "HGX-H100-validated.json", network, model)
    assert timeline.finish_ticks.tolist() == [ticks] * 8


@pytest.mark.parametrize(
    ("network", "model", "ticks"),
    [
        ("HGX-H100-validated.yml", "analytical", 79478),
        ("HGX-H100-validated.yml", "congestion", 83748),
        ("Ring_8npus.yml", "analytical", 90174),
        ("Ring_8npus.yml", "congestion", 90174),
    ],
)
def test_custom_collective(examples: Path, network: str, model: str, ticks: int) -> None:
    folder = examples.parent / "msccl"
    system = json.loads((folder / "custom_collective.json").read_text())
    key = "all-reduce-implementation-custom"
    system[key] = [str(folder / Path(system[key][0]).parent.name / Path(system[key][0]).name)]
    timeline = run(examples, example(examples, "all_reduce", 8), system, network, model)
    assert timeline.finish_ticks.tolist() == [ticks] * 8


@pytest.mark.parametrize("name", TEXT)
def test_training_steps(examples: Path, name: str) -> None:
    workload = examples.parent / "golden_mlcommons_1.0.0" / "text" / name
    timeline = run(examples, workload, "Ring_4chunks.json", "Ring_8npus.yml")
    finish, exposed = TEXT[name]
    assert timeline.finish_ticks.tolist() == [finish] * 8
    for cls in range(len(timeline.finish)):
        start, end = timeline.spans(cls)
        compute = timeline.table(cls).kind == 1
        assert finish - int((end - start)[compute].sum()) == exposed
