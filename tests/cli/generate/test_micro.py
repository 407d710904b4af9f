"""`armillary generate micro` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from armillary.cli import main

Call = Callable[[str], Result]
MACHINE = """\
network:
  - {name: node, topology: Switch, size: 8, bandwidth: 450 GB/s, latency: 500 ns}
  - {name: rack, topology: Switch, size: 8, bandwidth: 50 GB/s, latency: 1 us}
npu: {memory: {bandwidth: 2 TB/s}}
"""


def micro(*words: str) -> Result:
    return CliRunner().invoke(main, ["generate", "micro", *words])


@pytest.fixture
def machine(inputs: Path) -> str:
    Path("machine.yaml").write_text(MACHINE)
    return "machine.yaml"


def test_a_whole_sweep(machine: str) -> None:
    """5 collectives x 28 sizes on 64 NPUs: about 1 s on one idle core."""
    names = "all-reduce,all-gather,reduce-scatter,all-to-all,broadcast"
    result = micro("--machine", machine, "--collective", names, "--json", "a.json")
    assert result.exit_code == 0, result.output
    rows = json.loads(Path("a.json").read_text())["results"]
    # From 8 B; parts of a float for each of 64 ranks from 256 B.
    assert len(rows) == 2 * 28 + 3 * 23


def test_all_files(machine: str) -> None:
    pytest.importorskip("matplotlib")
    outputs = ("--plot", "a.png", "--json", "a.json", "--csv", "a.csv")
    result = micro("--machine", machine, "--max", "8 B", "--dtype", "int8", "--pattern", "all", "--groups", "all",
                   "--collective", "all", "--overlap", "0.5,2", *outputs)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "ring-bidirectional, 32 groups of 2 ranks" in result.stdout
    assert "barrier, 64 ranks, beside compute" in result.stdout
    assert [f"wrote a.{end}" in result.stderr for end in ("png", "json", "csv")] == [True] * 3


def test_files_of_astra_sim(inputs: Path) -> None:
    files = ("--system", "system.json", "--network", "network.yml")
    result = micro(*files, "--collective", "all", "--min", "1 MiB", "--max", "1 MiB", "--json", "a.json")
    assert result.exit_code == 0, result.output
    facts = json.loads(Path("a.json").read_text())
    assert facts["profile"] == "astra-sim"
    # test_commands: the same all-reduce after 20 us of compute ends at tick 63000.
    assert [row["time_ns"] for row in facts["results"] if row["test"] == "all-reduce"] == [43000]


def test_write_then_run(machine: str, call: Call) -> None:
    micro("--machine", machine, "--min", "1 MiB", "--max", "1 MiB", "--groups", "8", "--json", "a.json")
    result = micro("--ranks", "64", "--min", "1 MiB", "--max", "1 MiB", "--groups", "8", "--out", "sweep")
    assert result.exit_code == 0 and "wrote 4 traces of 64 ranks" in result.stderr
    cases = json.loads(Path("sweep/manifest.json").read_text())["cases"]
    known = {row["test"]: row["time_ns"] for row in json.loads(Path("a.json").read_text())["results"]}
    for case in cases:
        prefix = f"sweep/{case['prefix']}"
        assert call(f"trace check {prefix}").exit_code == 0
        body = "".join(f"  {line}\n" for line in MACHINE.splitlines())
        Path("one.yaml").write_text(f"workload: {{trace: {prefix}}}\nplatform:\n{body}")
        assert call("run one.yaml --json one.json").exit_code == 0
        assert json.loads(Path("one.json").read_text())["finish_ticks"] == known[case["test"]]


def test_overlap_is_written_with_its_duration(machine: str) -> None:
    result = micro("--machine", machine, "--overlap", "1", "--collective", "barrier", "--out", "sweep")
    assert result.exit_code == 0, result.output
    alone, beside = json.loads(Path("sweep/manifest.json").read_text())["cases"]
    assert alone["compute_ns"] == 0 and beside["compute_ns"] > 0
    assert Path(f"sweep/barrier_64_0B_beside_{beside['compute_ns']}ns.63.et").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing --machine (or --system and --network)"),
        (("--out", "x"), "or --ranks"),
        (("--ranks", "8"), "--ranks is for --out without a machine"),
        (("--ranks", "8", "--out", "x", "--overlap", "1"), "--ranks is for"),
        (("--machine", "machine.yaml", "--system", "s"), "exclude each other"),
        (("--system", "system.json"), "Missing --network"),
        (("--machine", "none.yaml"), "none.yaml"),
        (("--machine", "machine.yaml", "--collective", "all-redcue"), "did you mean 'all-reduce'"),
        (("--machine", "machine.yaml", "--pattern", "rin"), "did you mean 'ring'"),
        (("--machine", "machine.yaml", "--min", "8"), "--min: got '8', which has no unit"),
        (("--machine", "machine.yaml", "--min", "8 KiB", "--max", "8 B"), "from 8 KiB to 8 B"),
        (("--machine", "machine.yaml", "--groups", "8,x"), "--groups '8,x': got 'x'"),
        (("--machine", "machine.yaml", "--groups", "48"), "nearest: 32"),
        (("--machine", "machine.yaml", "--groups", ""), "--groups '': got ''"),
        (("--machine", "machine.yaml", "--pattern", ""), "--pattern '': expected all"),
        (("--machine", "machine.yaml", "--overlap", ""), "--overlap '': got ''"),
        (("--machine", "machine.yaml", "--overlap", "nan"), "--overlap 'nan': got 'nan'"),
        (("--machine", "machine.yaml", "--overlap", "0"), "--overlap '0': got '0'"),
        (("--machine", "machine.yaml", "--dtype", "float3"), "did you mean 'float32'"),
        (("--machine", "machine.yaml", "--max", "4 B", "--min", "1 B", "--collective", "all-gather"), "no size"),
        (("--machine", "machine.yaml", "--json", "machine.yaml/a.json"), "is not a folder"),
        (("--machine", "machine.yaml", "--json", "a", "--csv", "./a"), "--json writes the same file"),
        (("--machine", "machine.yaml", "--plot", "a.gif"), "suffix '.gif'"),
        (("--machine", "machine.yaml", "--out", "x", "--csv", "a.csv"), "--out and --csv exclude"),
        (("--ranks", "8", "--out", "."), "is there already"),
        (("--machine", "machine.yaml", "--collective", "broadcast", "--profile", "astra-sim"), "does not model it"),
    ],
)  # fmt: skip
def test_bad_requests(machine: str, words: tuple[str, ...], message: str) -> None:
    result = micro(*words)
    assert result.exit_code == 2 and message in result.stderr, result.output
    assert len(result.stderr.splitlines()) == 1
