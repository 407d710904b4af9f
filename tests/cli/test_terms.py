"""`armillary run` with a fit and terms: what it says of them, and how they are switched off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from armillary.cli import main

PLATFORM = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 8, "bandwidth": "300 GB/s", "latency": "1 us"}
    ],
    "npu": {"memory": {"bandwidth": "2 TB/s"}},
    "collectives": {"fit": "a100-sxm"},
    "terms": {"communication": "10 %", "step": {"time": "1 ms"}},
}


def run(folder: Path, *options: str, **platform: Any) -> tuple[int, str]:
    study = {"workload": {"collective": "all-reduce", "size": "64 MiB"}, "platform": PLATFORM | platform}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    result = CliRunner().invoke(main, ["run", str(folder / "study.yaml"), *options])
    return result.exit_code, result.output


def test_a_run_says_what_is_on(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--json", str(tmp_path / "report.json"))
    assert code == 0
    assert "Collectives timed by fit a100-sxm\nTerms: communication 10 %, step time 1 ms\n" in text
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["terms"] == {"communication_ratio": 0.1, "step_time_ns": 1e6}
    assert (report["collective_fit"], report["host_ns"]) == ({"name": "a100-sxm", "notes": []}, 10**6)


def test_terms_can_be_left_out_and_priced(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--no-terms")
    assert code == 0
    assert "Terms" not in text
    code, text = run(tmp_path, "--term-costs")
    assert code == 0
    assert "step time 1 ms" in text.splitlines()[-3]


@pytest.mark.parametrize(
    ("platform", "options", "problem"),
    [
        (
            {"collectives": {"fit": "a100-sx"}},
            (),
            "study.yaml:3: platform.collectives.fit: collective fit 'a100-sx'",
        ),
        ({"collectives": {"fit": "a100-sxm", "node": "nod"}}, (), "did you mean 'node'"),
        ({"collectives": {"node": "node"}}, (), "expected only with fit"),
        ({"terms": {"overlap": {"kompute": "5 %"}}}, (), "did you mean 'compute'"),
        ({"terms": {"straggler": "101 %"}}, (), "expected at most 100 %"),
        ({"terms": {"communication": {"inside": "1001 %"}}}, (), "expected at most 1000 %"),
        ({"terms": {"launch": "5"}}, (), "platform.terms.launch"),
        ({}, ("--network-model", "packet"), "platform.collectives.fit has no effect"),
        ({"terms": {}}, ("--term-costs",), "all terms are off"),
        ({}, ("--term-costs", "--no-terms"), "exclude each other"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, platform: dict[str, Any], options: tuple[str, ...], problem: str
) -> None:
    code, text = run(tmp_path, *options, **platform)
    assert code == 2
    assert problem in text.replace("\n", " ")


def test_platform_show_says_both(tmp_path: Path) -> None:
    run(tmp_path)
    result = CliRunner().invoke(main, ["machine", "show", str(tmp_path / "study.yaml")])
    assert "a100-sxm, in physical; a node is node" in result.output
    assert "communication 10 %, step time 1 ms, in physical" in result.output
