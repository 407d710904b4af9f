"""Captured steps with the constants of a software."""

from __future__ import annotations

from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.capture.log import HOST, Row
from armillary.explore.training.captured import captured_step, host_times
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import constants_of
from armillary.report import to_json
from armillary.report.places import Places, exposed_ticks, layers, places_json
from armillary.report.time_breakdown import breakdown
from tests.capture.logs import CUSTOM, call, kernel, log
from tests.capture.test_trace import GATHER, REDUCE, mesh_logs


def test_a_captured_step_has_the_constants_of_generated_ones() -> None:
    step = captured_step(mesh_logs(), "dgx-h100", software="torchtitan")
    constants = constants_of("torchtitan", "h100-sxm").constants
    keys = constants.platform("h100-sxm")
    assert step.platform.compute.options["factors"]["gemm"] == keys["compute"]["factors"]["gemm"]
    assert step.platform.terms.communication_between == pytest.approx(
        constants.communication_between, abs=1e-6
    )
    result = step.described(armillary.simulate(step.trace, step.platform))
    found = to_json(result)["interval"]
    assert found["low_ns"] < result.total_ticks < found["high_ns"] and found["of"] == "steps of torchtitan"


def test_the_software_is_what_the_program_imported() -> None:
    logs = mesh_logs()
    assert captured_step(logs, "dgx-h100").software.name == "fsdp2"  # type: ignore[union-attr]
    for each in logs:
        each.compiled = True
    assert captured_step(logs, "dgx-h100").software.name == "torchtitan"  # type: ignore[union-attr]
    for each in logs:
        each.frameworks = ["megatron-core"]
    step = captured_step(logs, "dgx-h100")
    assert step.software is not None and step.software.name == "megatron-core"
    assert step.host.call > 0
    assert any("the host takes" in text for text in step.assumptions)


def test_nothing_is_added_where_that_is_asked_for() -> None:
    step = captured_step(mesh_logs(), "dgx-h100", software="none")
    assert step.software is None and not step.platform.terms.on()
    assert "interval" not in to_json(step.described(armillary.simulate(step.trace, step.platform)))
    with pytest.raises(InputError, match="no software 'torchtitn'"):
        captured_step(mesh_logs(), "dgx-h100", software="torchtitn")


def test_a_machine_of_another_size_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"one of 8 ranks, but the machine has 16 NPUs.*--ranks 16"):
        captured_step(mesh_logs(), "2xdgx-h100")


def test_what_has_no_price_widens_the_interval_and_is_named() -> None:
    def wide(kinds: list[int]) -> float:
        step = captured_step([log(0, 8, [kernel(0, kind) for kind in kinds])], "dgx-h100")
        result = step.described(armillary.simulate(step.trace, step.platform))
        assert (CUSTOM in kinds) == any(
            "mine::kernel, 1 times" in text for text in result.info["assumptions"]
        )
        return float(result.info["uncertainty"]["high_ratio"])

    assert wide([0, CUSTOM]) > 1.05 * wide([0, 0])


def test_what_reading_takes_the_host_delays_what_comes_after(tmp_path: Path) -> None:
    rows = [kernel(), Row(HOST, 0, 0), kernel()]
    own = tmp_path / "mine.yaml"
    own.write_text("title: mine\ndevices: {all: {constants: {synchronise: 445}, measured_on: h100-sxm}}\n")
    plain, slow = (
        captured_step([log(0, 8, rows)], "dgx-h100", software=name, host_ns=0) for name in ("fsdp2", str(own))
    )
    assert plain.host.read == 0 and slow.host.read > 250_000
    times = [armillary.simulate(step.trace, step.platform).total_ticks for step in (plain, slow)]
    assert times[1] > times[0] + 250_000
    assert host_times(Constants(handshake=2.0)).message == 2000


def test_time_by_place_adds_up() -> None:
    rows = [kernel(), call(0), kernel(), call(1), Row(4, 0, 0), kernel(), Row(4, 1, 0), kernel()]
    step = captured_step([log(0, 8, rows, [tuple(range(8))], [REDUCE, GATHER])], "dgx-h100")
    result = armillary.simulate(step.trace, step.platform)
    found, parts = Places(result, step.trace), breakdown(result, 0)
    assert exposed_ticks(result, 0).sum() == parts.communication + parts.waiting > 0
    assert sum(each.exposed for each in found.exposed()) == parts.communication + parts.waiting
    [module], [line] = found.modules(), found.lines()
    assert module.name == "layers.0" and line.name == "train.py:7" and module.kernels == line.kernels == 4
    assert module.ticks == line.ticks == parts.finish - parts.idle
    content = places_json(found, [("weights", "layers.0", 512)])
    assert content["modules"][0]["forward_ns"] == module.forward
    assert content["memory"] == [{"what": "weights", "module": "layers.0", "peak_bytes": 512}]


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("layers.12.attention.wq", "layers.*.attention.wq"),
        ("layers.3._checkpoint_wrapped_module.mlp", "layers.*.mlp"),
        ("_orig_mod.h.0", "h.*"),
        ("", ""),
    ],
)
def test_layers_of_a_kind_have_one_name(module: str, found: str) -> None:
    assert layers(module) == found
