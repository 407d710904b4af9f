"""Synthesised collectives against built-in ones, and the command that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import armillary
from armillary.cli import main
from armillary.collective.msccl import read_msccl
from armillary.collective.msccl_check import check_result
from armillary.collective.synthesis import check_schedule
from armillary.explore.synthesis import compare
from armillary.platform import load_platform
from armillary.trace import load_trace

PRESETS = ("hgx-h100", "mi250", "mi300x", "wormhole-galaxy", "cerebras-wse-2")


@pytest.mark.parametrize("preset", PRESETS)
def test_no_built_in_algorithm_is_faster_on_presets(preset: str) -> None:
    found = compare(load_platform(preset), "all-reduce", 10**9)
    check_schedule(found.schedule)
    assert found.taken == "synthesized"
    assert found.bound <= found.simulated.time <= found.built_in[0].time


def test_what_is_faster_is_taken() -> None:
    found = compare(load_platform("mi250"), "all-reduce", 10**9, chunks_per_npu=1)
    assert found.taken == found.built_in[0].name
    assert found.time == found.built_in[0].time < found.simulated.time


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["collective", "synthesize", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_command_writes_what_other_commands_read(tmp_path: Path) -> None:
    xml, traces, plot = tmp_path / "a.xml", tmp_path / "traces", tmp_path / "a.png"
    files = ["--msccl", str(xml), "--out", str(traces), "--plot", str(plot)]
    found = json.loads(
        run("wormhole-galaxy", "--size", "64 MB", "--chunks-per-npu", "1", "--json", "-", *files)
    )
    assert (found["npus"], found["messages"], found["taken"]) == (32, 2 * 32 * 31, "synthesized")
    check_result(read_msccl(xml))
    ran = armillary.simulate(
        load_trace(traces / "rank"), load_platform("wormhole-galaxy"), network_model="congestion"
    )
    assert ran.total_ticks == pytest.approx(found["predicted_ns"], rel=0.03)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_command_prints_a_table() -> None:
    text = run("hgx-h100", "--operation", "all-gather", "--size", "1 GB", "--chunks-per-npu", "1")
    assert "all-gather of 953.7 MiB among 8 NPUs" in text
    assert "100.0% of simulated" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hgx-h100", "--size", "1 GBB"], "--size:"),
        (["hgx-h100", "--size", "1 GB", "--plot", "a.txt"], "a.txt"),
        (["hgx-h100", "--size", "1 GB", "--msccl", "/dev/null/where.xml"], "is not a folder"),
        (["hgx-h100", "--size", "0 B"], "--size: got '0 B'"),
    ],
)
def test_bad_input_exits_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["collective", "synthesize", *arguments])
    assert result.exit_code == 2
    assert words in result.output
