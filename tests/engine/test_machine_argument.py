"""What `simulate` takes as a machine, which profile it runs, and what it says has no effect there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.platform import AstraSimSystem, Collectives, Npu, Platform, load_platform, read_platform
from armillary.trace import GraphBuilder, Trace

STUDY = """\
workload: {collective: all-reduce, size: 1 MiB}
profile: PROFILE
platform:
  network: [{topology: Ring, size: 8, bandwidth: 50 GB/s, per: link, latency: 500 ns}]
  npu: {memory: {bandwidth: 1 TB/s}}
"""


def trace(ranks: int = 8) -> Trace:
    b = GraphBuilder()
    b.all_reduce("sum", 1 << 20)
    return Trace.replicate(b.graph(), ranks=ranks)


@pytest.mark.parametrize("profile", ["physical", "astra-sim"])
def test_a_platform_carries_its_profile(tmp_path: Path, profile: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(STUDY.replace("PROFILE", profile))
    platform = load_platform(file)
    found = armillary.simulate(trace(), platform)
    assert platform.profile == found.info["profile"] == profile
    assert found.total_ticks == armillary.simulate(trace(), file, profile=profile).total_ticks
    assert armillary.simulate(trace(), str(file)).info["profile"] == profile
    assert armillary.simulate(trace(), platform, profile="physical").info["profile"] == "physical"


def test_a_preset_goes_by_its_name() -> None:
    found = armillary.simulate(trace(), "hgx-h100")
    assert found.total_ticks == armillary.simulate(trace(), load_platform("hgx-h100")).total_ticks
    assert armillary.simulate(trace(), {"preset": "hgx-h100"}).total_ticks == found.total_ticks


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("hgx-h10", "neither a file nor a preset (did you mean 'hgx-h100'?)"),
        ("H100", "neither a file nor a preset (did you mean '1xh100'?)"),
        (5, "platform: got 5, expected a Platform, the name of a preset, the path of a study"),
        (None, "platform: got nothing, expected a Platform"),
    ],
)
def test_what_is_no_machine_is_named(machine: Any, words: str) -> None:
    for call in (
        lambda: armillary.simulate(trace(), machine),
        lambda: armillary.simulate_jobs([armillary.PlacedJob("a", trace(2), (0, 1))], machine),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert words in str(error.value)


def test_what_is_no_trace_is_named() -> None:
    with pytest.raises(InputError, match="trace: got 7, expected a Trace"):
        armillary.simulate(7, "hgx-h100")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (AstraSimSystem(inter_dimension="roundRobin"), "inter_dimension has no effect in profile physical"),
        (AstraSimSystem(local_reduction_delay=5), "AstraSimSystem.local_reduction_delay has no effect"),
        (AstraSimSystem(queues_per_dim=4), "platform.collectives.queues has no effect"),
        (AstraSimSystem(rendezvous=True), "platform.rendezvous has no effect"),
    ],
)  # fmt: skip
def test_what_has_no_effect_warns(system: AstraSimSystem, words: str) -> None:
    platform = Platform(load_platform("hgx-h100").dimensions, astra_sim=system)
    found = armillary.simulate(trace(), platform, profile="physical")
    assert [text for text in found.info["warnings"] if words in text], found.info["warnings"]
    found = armillary.simulate(trace(), platform, profile="astra-sim")
    assert not [text for text in found.info["warnings"] if "no effect" in text]


def test_active_chunks_of_astra_sims_files_do_not_count_in_physical() -> None:
    system = {"preferred-dataset-splits": 4, "active-chunks-per-dimension": 2}
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    given = read_platform(system, network)
    found = armillary.simulate(trace(), given, profile="physical", network_model="flow")
    words = "active-chunks-per-dimension has no effect in profile physical"
    assert [text for text in found.info["warnings"] if words in text]
    less = replace(given, collectives=replace(given.collectives, active_chunks=1))
    assert (
        found.total_ticks
        == armillary.simulate(trace(), less, profile="physical", network_model="flow").total_ticks
    )


def test_what_counts_does_not_warn() -> None:
    for profile in ("physical", "astra-sim"):
        both = Platform(
            load_platform("hgx-h100").dimensions, Npu(endpoint_delay=7), collectives=Collectives(chunks=16)
        )
        warnings = armillary.simulate(trace(), both, profile=profile).info["warnings"]
        assert not [text for text in warnings if "no effect" in text]


@pytest.mark.parametrize("switch", ["fold", "messages", "finish_order"])
def test_a_word_is_no_truth_value(tmp_path: Path, switch: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(STUDY.replace("PROFILE", "physical"))
    with pytest.raises(InputError, match=f"{switch.replace('_', '-')}: got 'no', expected true or false"):
        armillary.simulate(trace(), file, **{switch: "no"})
