"""From PyTorch's traces to a result on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from armillary.trace import GraphBuilder, Trace, load_trace, write_trace
from tests.convert.pytorch.recording import Recording
from tests.convert.pytorch.test_job import data_parallel, device_step

Call = Callable[[str], Result]


@pytest.fixture
def folder(inputs: Path) -> Path:
    """Return the folder 'run' with the traces of four ranks, inside the current one."""
    found = inputs / "run"
    found.mkdir()
    for rank in range(4):
        data_parallel(rank, 4).write(found, rank, zipped=rank == 3)
    return found


@pytest.fixture
def other(inputs: Path) -> Path:
    """Return a device trace of another run."""
    rec = Recording()
    for at in range(20):
        rec.op(f"other{at}", 10 * at, 10 * at + 5)
    return rec.write(inputs, 7)[1]


def read(path: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(path).read_text())
    return document


def test_link_convert_run(folder: Path, call: Call) -> None:
    linked = call(
        "trace link --host run/host_0.json --device run/device_0.json -o linked.json --json link.json"
    )
    assert linked.exit_code == 0, linked.output
    assert "linked 7 of 7 nodes (100.00 %): 7 by rf_id" in linked.stdout
    assert read("link.json").keys() >= {"nodes", "linked", "link_rate", "strategies", "warnings", "schema"}
    done = call("trace convert --from pytorch linked.json -o out --json convert.json")
    assert done.exit_code == 0, done.output
    facts = read("convert.json")
    assert facts.keys() >= {"nodes", "linked", "link_rate", "comm", "groups", "gap_fraction", "warnings"}
    assert facts["comm"] == {"ALL_REDUCE": {"count": 1, "bytes": 1_000_000}}
    assert facts["link_rate"] == 1
    assert "1 of 4 ranks are given (rank 0)" in facts["warnings"][0]
    assert load_trace("out").n_ranks == 1


def test_device_operations_and_their_launches_are_counted(inputs: Path, call: Call) -> None:
    device_step().write(inputs)
    done = call("trace link --host host_0.json --device device_0.json -o linked.json")
    assert "9 of 9 device operations have their launch" in done.stdout


def test_a_folder_of_pairs_becomes_one_trace(folder: Path, call: Call) -> None:
    done = call("trace convert --from pytorch run -o out --json convert.json")
    assert done.exit_code == 0, done.output
    facts = read("convert.json")
    assert (facts["ranks"], facts["comm"]["ALL_REDUCE"]["count"]) == (4, 4)
    assert facts["warnings"] == []
    assert len(facts["per_rank"]) == 4
    assert load_trace("out").n_ranks == 4
    checked = call("trace check out")
    assert checked.exit_code == 0, checked.output


def test_run_takes_the_recorded_time_without_a_machine(folder: Path, call: Call) -> None:
    done = call("run --pytorch run --json result.json")
    assert done.exit_code == 0, done.output
    assert abs(ticks(done) - 1_000_000) < 1000
    assert read("result.json")


def ticks(done: Result) -> int:
    """Return the end of the last rank that the summary tells, ns."""
    match = re.search(r"\(([\d,]+) ticks\)", done.output)
    assert match, done.output
    return int(match[1].replace(",", ""))


def test_run_on_the_machine_of_a_study(folder: Path, call: Call) -> None:
    study = Path("study.yaml").read_text().replace("profile: astra-sim\n", "")
    slow = study.replace("50 GB/s", "1 MB/s")
    ends = []
    for text in (study, slow):
        Path("machine.yaml").write_text(text)
        done = call("run machine.yaml --pytorch run")
        assert done.exit_code == 0, done.output
        ends.append(ticks(done))
    assert ends[0] < 700_000, "the all-reduce took 375 us of 1 ms, and now 30"
    assert ends[1] > 1_000_000


def test_run_on_a_machine_of_astra_sim(folder: Path, call: Call) -> None:
    done = call("run --pytorch run --system system.json --network network.yml")
    assert done.exit_code == 0, done.output


def test_study_with_replay_takes_the_recorded_time(folder: Path, call: Call) -> None:
    study = Path("study.yaml").read_text().replace("profile: astra-sim\n", "")
    Path("machine.yaml").write_text(study + "  compute: {replay: true}\n")
    done = call("run machine.yaml --pytorch run")
    assert done.exit_code == 0, done.output
    assert abs(ticks(done) - 1_000_000) < 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trace link --host run/host_0.json --device device_7.json -o linked.json", "not of the same steps"),
        ("trace link --host device_7.json --device device_7.json -o linked.json", "has no list 'nodes'"),
        (
            "trace link --host run/host_0.json --device run/host_0.json -o linked.json",
            "has no list 'traceEvents'",
        ),
        (
            "trace link --host none.json --device run/device_0.json -o linked.json",
            "expected a readable JSON file",
        ),
        ("trace link --host run/host_0.json --device run/device_0.json -o cut.json/linked.json", "--out"),
        ("trace link --host run/host_0.json --device cut.json -o linked.json", "line 1, column"),
        ("trace link --host run/host_0.json --device run/device_0.json", "'-o'"),
        ("trace convert --from pytorch cut.json -o linked.json", "line 1, column"),
        ("trace convert --from pytorch empty -o linked.json", "no traces, expected host_<rank>.json"),
        ("trace convert --from pytorch none.json -o linked.json", "expected a readable JSON file"),
        ("trace convert --from pytorch system.json -o linked.json", "has no list 'nodes'"),
        ("run --pytorch empty", "no traces, expected host_<rank>.json"),
        ("run --pytorch none", "none"),
        ("run --pytorch run --workload step", "--pytorch and --workload exclude each other"),
        ("run --pytorch run --system system.json", "--network"),
    ],
)
def test_errors(folder: Path, other: Path, call: Call, words: str, message: str) -> None:
    Path("empty").mkdir()
    Path("cut.json").write_text(Path("run/device_0.json").read_text().replace("\n", "")[:500])
    before = set(Path().iterdir())
    done = call(words)
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert "Traceback" not in done.output
    assert set(Path().iterdir()) == before, "nothing is written"


def test_a_converted_trace_is_replayed_without_a_machine(folder: Path, call: Call) -> None:
    assert call("trace convert --from pytorch run -o out").exit_code == 0
    done = call("run --workload out")
    assert done.exit_code == 0, done.output
    assert ticks(done) == ticks(call("run --pytorch run"))


def test_a_workload_without_times_needs_a_machine(inputs: Path, call: Call) -> None:
    graph = GraphBuilder()
    graph.all_reduce("sum", 1000)
    write_trace("free", Trace.replicate(graph.graph(), 2))
    done = call("run --workload free")
    assert done.exit_code == 2
    assert "has no recorded time" in done.output
    assert "--system and --network" in done.output


@pytest.mark.parametrize("source", ["run/device_0.json", "alone"])
def test_kineto_alone_is_replayed(folder: Path, call: Call, source: str) -> None:
    alone = folder.parent / "alone"
    alone.mkdir()
    for file in folder.glob("device_*"):
        (alone / file.name.replace("device", "worker")).write_bytes(file.read_bytes())
    done = call(f"run --pytorch {source}")
    assert done.exit_code == 0, done.output
    assert abs(ticks(done) - 1_000_000) < 50_000


@pytest.mark.parametrize("command", ["info", "stats", "timeline -o picture.json", "check"])
@pytest.mark.parametrize("file", ["device_0.json", "host_0.json"])
def test_commands_for_chakra_name_the_one_for_pytorch(
    folder: Path, call: Call, command: str, file: str
) -> None:
    name, *options = command.split()
    done = call(" ".join(["trace", name, f"run/{file}", *options]))
    assert done.exit_code == 2
    assert f"`armillary trace convert --from pytorch run/{file} -o PREFIX`" in done.output
    assert f"`armillary run --pytorch run/{file}`" in done.output


def test_one_rank_of_several_needs_the_others_on_a_machine(folder: Path, call: Call) -> None:
    text = Path("study.yaml").read_text().replace("profile: astra-sim\n", "")
    Path("machine.yaml").write_text(text)
    assert call("run --pytorch run/device_0.json").exit_code == 0
    done = call("run machine.yaml --pytorch run/device_0.json")
    assert done.exit_code == 2
    assert "1 of the 4 ranks" in done.output
    assert "armillary trace extrapolate --from-one-rank" in done.output
    whole = call("run machine.yaml --pytorch run/device_0.json --from-one-rank")
    assert whole.exit_code == 0, whole.output
    assert "all 4 ranks are assumed to do what rank 0 did" in whole.output
    assert call("run machine.yaml --from-one-rank").exit_code == 2
    refused = call("run machine.yaml --pytorch run --from-one-rank")
    assert refused.exit_code == 2
    assert "run has 4 ranks; expected one" in refused.output
