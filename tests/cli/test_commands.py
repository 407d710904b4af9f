"""What the commands print and write for good input."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import armillary
from armillary.cli.demo import ASTRA_SIM_TICKS, NPUS
from armillary.trace import GraphBuilder, Trace, write_trace

Call = Callable[[str], Result]
ASTRA = (
    "astra-sim --workload-configuration=step --system-configuration=system.json "
    "--network-configuration=network.yml --remote-memory-configuration=memory.json "
    "--comm-group-configuration=empty --terse"
)


def test_astra_sim_prints_its_line_for_every_rank(inputs: Path, call: Call) -> None:
    result = call(ASTRA)
    assert result.stdout.splitlines() == [
        f"sys[{rank}] finished, 63000 cycles, exposed communication 43000 cycles." for rank in range(4)
    ]


def test_links_with_contention(inputs: Path, call: Call) -> None:
    # Neighbours on a ring share no link: the ticks are those without contention.
    result = call(f"{ASTRA} --network-model=congestion")
    assert result.stdout.splitlines() == [
        f"sys[{rank}] finished, 63000 cycles, exposed communication 43000 cycles." for rank in range(4)
    ]
    result = call("run --workload step --system system.json --network network.yml --network-model congestion")
    assert result.exit_code == 0, result.output
    assert "63,000 ticks" in result.stdout
    assert "congestion network, 4 ranks\n" in result.stdout


def test_astra_sim_takes_all_flags(inputs: Path, call: Call) -> None:
    result = call(
        f"{ASTRA} --num-queues-per-dim=2 --rendezvous-protocol=true --injection-scale=2 --comm-scale=1 "
        "--compute-scale=1 --logging-configuration=empty --logging-folder=log --network-model=analytical"
    )
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4


def test_warnings_of_astra_sim_go_to_stderr(inputs: Path, call: Call) -> None:
    result = call(f"{ASTRA} --comm-scale=2")
    assert "armillary: warning: " in result.stderr
    assert "--comm-scale has no effect" in result.stderr
    assert "warning" not in result.stdout


def test_run_writes_what_is_asked_for(inputs: Path, call: Call) -> None:
    result = call("run study.yaml --json a.json --timeline a.json.gz --plot a.png --save a.npz")
    assert result.exit_code == 0, result.output
    assert (
        json.loads(Path("a.json").read_text())["finish_ticks"] == armillary.Timeline.load("a.npz").total_ticks
    )
    assert json.loads(gzip.decompress(Path("a.json.gz").read_bytes()))["traceEvents"]
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert not list(inputs.glob("*.part"))


def test_a_saved_result_gives_the_same_summary(inputs: Path, call: Call) -> None:
    fresh = call("run study.yaml --save a.npz")
    assert call("explain a.npz").stdout.startswith(fresh.stdout)


def test_a_brief_answer_is_the_first_lines_of_the_whole(inputs: Path, call: Call) -> None:
    whole, brief = (call(f"run study.yaml{more}").stdout for more in ("", " --brief"))
    assert brief.startswith("Step time ") and "profile" not in brief and len(brief.splitlines()) < 4
    assert [line for line in whole.splitlines() if line in brief.splitlines()] == brief.splitlines()
    refused = call("run study.yaml --brief --samples 3")
    assert refused.exit_code == 2 and "--samples and --brief exclude each other" in refused.stderr


def test_files_and_flags_agree(inputs: Path, call: Call) -> None:
    files = "run --workload step --system system.json --network network.yml --json a.json"
    assert call(files).exit_code == 0
    assert json.loads(Path("a.json").read_text())["finish_ticks"] == 63000


def test_a_workload_runs_on_a_machine_by_its_name(inputs: Path, call: Call) -> None:
    """A study's machine, and a preset: the trace on it is that of --workload."""
    assert call("run study.yaml --json a.json").exit_code == 0
    assert call("run --workload step --machine study.yaml --json b.json").exit_code == 0
    first, second = (json.loads(Path(name).read_text())["finish_ticks"] for name in ("a.json", "b.json"))
    assert first == second
    made = call("run --workload step --machine mi300x")
    assert made.exit_code == 2 and "8" in made.stderr  # NPUs, and the trace has 4 ranks
    for words, message in {
        "run study.yaml --machine mi300x": "--machine and STUDY exclude each other",
        "run --workload step --machine mi300x --system system.json": "--machine and --system exclude each other",
        "run --machine mi300x": "--machine needs --workload, --pytorch or --captured",
        "run --workload step --machine mi30x": "did you mean 'mi300x'",
    }.items():
        made = call(words)
        assert made.exit_code == 2 and message in made.stderr, words


def test_no_fold_gives_the_same_ticks(inputs: Path, call: Call) -> None:
    for option in ("", "--no-fold"):
        assert call(f"run study.yaml {option} --json out{option}.json").exit_code == 0
    folded, unfolded = (json.loads(Path(name).read_text()) for name in ("out.json", "out--no-fold.json"))
    assert (folded["folded"], unfolded["folded"]) == (True, False)
    assert (folded["classes_count"], unfolded["classes_count"]) == (1, 4)
    assert folded["finish_ticks_by_rank"] == unfolded["finish_ticks_by_rank"]


def test_a_stuck_run_says_who_waits(inputs: Path, call: Call) -> None:
    builders = [GraphBuilder(rank=rank) for rank in range(4)]
    builders[0].recv(1, 64, name="never sent")
    write_trace("stuck", Trace.from_ranks([builder.graph() for builder in builders]))
    result = call("run --workload stuck --system system.json --network network.yml")
    assert result.exit_code == 3
    assert "never sent" in result.stderr


def test_platform_and_collective_show(inputs: Path, call: Call) -> None:
    shown = json.loads(call("machine show --network network.yml --system system.json --json -").stdout)
    assert shown["npus"] == 4
    assert json.loads(call("machine show --schema").stdout)["title"] == "Armillary study"
    assert "Ring" in call("machine show study.yaml").stdout
    assert call("collective show ring --ranks 4").stdout.startswith("ring all-reduce, 4 members, 6 steps")


def test_trace_commands(inputs: Path, call: Call) -> None:
    facts = json.loads(call("trace info step.0.et --json -").stdout)[0]
    assert facts["nodes"] == 2
    lines = [json.loads(line) for line in call("trace dump step.0.et").stdout.splitlines()]
    assert [line.get("name") for line in lines] == [None, "work", "sum"]
    assert call("trace check step.0.et step.1.et").stdout.startswith("2 files: nothing wrong\n")
    assert json.loads(call("trace check step.0.et --json -").stdout)["findings"] == []


@pytest.mark.parametrize("words", ["demo", "demo --out there"])
def test_demo(words: str, inputs: Path, call: Call) -> None:
    result = call(words)
    assert result.exit_code == 0, result.output
    folder = Path("there" if "there" in words else "out/demo")
    assert f"ASTRA-sim gives {ASTRA_SIM_TICKS:,} cycles for this input: the same." in result.stdout
    assert len(list((folder / "traces").glob("step.*.et"))) == NPUS
    for name in ("all-reduce", "step"):
        for suffix in (".yaml", ".json", ".png", ".timeline.json.gz", ".result"):
            assert (folder / f"{name}{suffix}").stat().st_size > 0
    assert call(f"run {folder}/step.yaml").stdout in result.stdout


def test_demo_without_matplotlib_lacks_only_the_pictures(
    inputs: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = call("demo --out drawn")
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    bare = call("demo --out bare")
    assert bare.exit_code == 0, bare.output
    drawn = {path.name for path in Path("drawn").iterdir()}
    assert {path.name for path in Path("bare").iterdir()} == {n for n in drawn if not n.endswith(".png")}
    lines = bare.stdout.splitlines()
    (missing,) = set(lines) - set(whole.stdout.replace("drawn", "bare").splitlines())
    assert "pip install armillary[plot]" in missing
