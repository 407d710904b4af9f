"""Programs at the paths of ASTRA-sim's, as its own regression test calls them."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from armillary.cli.programs import ASTRA_SIM, CHAKRA, PROGRAMS
from armillary.trace import GraphBuilder, Trace, write_trace

# Written for these tests after the description of ASTRA-sim's: it cleans lines, and compares them with a reference.
RUN_ALL = """\
#!/bin/bash
set -e
cd "$(dirname "$0")/.."
build/astra_analytical/build/bin/AstraSim_Analytical_Congestion_Aware \\
  --workload-configuration=tests/ar --system-configuration=tests/system.json \\
  --network-configuration=tests/network.yml --remote-memory-configuration=tests/memory.json | tee tests/stdout.txt
sed -E 's/\\[[^]]+\\] //; s/\\[[^]]+\\] //; s/\\[[^]]+\\] //' tests/stdout.txt > tests/clean.txt
diff tests/clean.txt tests/reference.txt
"""
RING = (
    "ring of node 0, id: 0 dimension: local total nodes in ring: 8 index in ring: 0 offset: 1 "
    "total nodes in ring: 8\n"
)
RANK = """\
sys[{0}] finished, 117780 cycles, exposed communication 117780 cycles.
sys[{0}]. Post statistics processing start.
sys[{0}]. Post statistics processing end.
sys[{0}], Wall time: 117780
sys[{0}], Comm time: 117780
"""


@pytest.fixture
def tree(inputs: Path) -> Path:
    """Return a folder as ASTRA-sim's, without its programs."""
    folder = inputs / "astra-sim"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/run_all.sh").write_text(RUN_ALL)
    (folder / "tests/reference.txt").write_text(RING * 4 + "".join(map(RANK.format, range(8))) + "Exiting\n")
    system = json.loads(Path("system.json").read_text()) | {"local-mem-bw": 50}
    (folder / "tests/system.json").write_text(json.dumps(system))
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}
    (folder / "tests/network.yml").write_text(json.dumps(network))
    (folder / "tests/memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    builder = GraphBuilder()
    builder.all_reduce("all-reduce", size="1 MiB")
    write_trace(folder / "tests/ar", Trace.replicate(builder.graph(), ranks=8))
    return folder


def test_the_regression_test_of_upstream(tree, call):
    result = call(f"astra-sim install {tree}")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == len(ASTRA_SIM)
    done = subprocess.run(["bash", tree / "tests/run_all.sh"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 45
    assert (tree / "log/log.log").read_text() == done.stdout
    assert (tree / "log/err.log").read_text() == ""


def test_install_leaves_what_is_there(tree, call):
    theirs = tree / "build/astra_analytical/build/bin/AstraSim_Analytical_Congestion_Aware"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    result = call(f"astra-sim install {tree}")
    assert result.exit_code == 2 and "is there already" in result.stderr
    assert theirs.read_text() == "theirs" and list(theirs.parent.iterdir()) == [theirs]
    theirs.unlink()
    # Ours are replaced.
    assert call(f"astra-sim install {tree}").exit_code == call(f"astra-sim install {tree}").exit_code == 0


FLAGS = (
    "astra-sim --workload-configuration=step --system-configuration=system.json "
    "--network-configuration network.yml --remote-memory-configuration memory.json"
)


def test_standard_output_has_their_lines_only(inputs, call):
    result = call(f"{FLAGS} --num-queues-per-dims=2 --verbose yes --compute-scale=2 --rendezvous-protocol")
    assert result.exit_code == 0
    assert all(line.startswith("[20") for line in result.stdout.splitlines())
    assert (
        "--num-queues-per-dims is ignored, as in ASTRA-sim (did you mean '--num-queues-per-dim'?)"
        in result.stderr
    )
    assert "--verbose is ignored" in result.stderr


def test_terse_writes_nothing(inputs, call):
    before = set(inputs.iterdir())
    result = call(f"{FLAGS} --terse")
    assert (
        result.stdout.splitlines()[0].startswith("sys[0] finished, ") and len(result.stdout.splitlines()) == 4
    )
    assert set(inputs.iterdir()) == before


@pytest.mark.parametrize("model", ["flow", "packet", "credit"])
def test_networks_that_are_shared(inputs, call, model):
    result = call(f"{FLAGS} --network-model={model} --terse")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 4
    assert f"network model {model} is of profile physical" in result.stderr
    assert "50 GiB/s of a link are 53.6871 GB/s, 107.374 GB/s of an NPU" in result.stderr
    study = call(
        "run --workload step --system system.json --network network.yml --profile physical --network-model flow"
    )
    if model == "flow":
        ticks = result.stdout.split()[2]
        assert f"{int(ticks):,} ticks" in study.stdout


def test_a_network_model_that_is_none(inputs, call):
    result = call(f"{FLAGS} --network-model=flaw")
    assert result.exit_code == 2 and "did you mean 'flow'" in result.stderr


def test_folders_and_configurations(inputs, call):
    assert call(f"{FLAGS} --logging-folder=logs --logging-configuration=empty").exit_code == 0
    assert Path("logs/log.log").exists() and not Path("log").exists()
    result = call(f"{FLAGS} --logging-folder=no/logs")
    assert result.exit_code == 2 and "--logging-folder no/logs: cannot be made" in result.stderr
    Path("loggers.toml").write_text("x = [")
    result = call(f"{FLAGS} --logging-configuration=loggers.toml")
    assert result.exit_code == 2 and result.stdout == "" and "is no TOML" in result.stderr


def test_more_lines_where_loggers_ask(inputs, call):
    system = json.loads(Path("system.json").read_text()) | {"trace-enabled": 1}
    Path("system.json").write_text(json.dumps(system))
    Path("loggers.toml").write_text(
        '[[sink]]\nname = "out"\ntype = "color_stdout_sink_mt"\n'
        '[[logger]]\nname = "workload"\nsinks = ["out"]\nlevel = "debug"\n'
    )
    assert "issue,sys->id=0" not in call(FLAGS).stdout
    assert "issue,sys->id=0" in call(f"{FLAGS} --logging-configuration=loggers.toml").stdout


def test_every_program_is_installed_under_its_name():
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    # Chakra's own would be replaced by scripts of their names.
    scripts = set(tomllib.loads(project)["project"]["scripts"])
    assert set(PROGRAMS) & scripts == set(PROGRAMS) - set(CHAKRA)


def test_chakras_programs(inputs, call):
    assert call("chakra install bin").exit_code == 0
    done = subprocess.run(
        ["bin/chakra_jsonizer", "--input_filename", "step.0.et", "--output_filename", "step.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == "wrote step.json: 2 nodes\n"
    Path("bin/et_converter").write_text("theirs")
    result = call("chakra install bin")
    assert result.exit_code == 2 and "bin/et_converter is there already" in result.stderr


MICRO = "MICRO\n1\nconv1 -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 65536 100\n"


def test_the_converter_of_2024(inputs, call):
    Path("micro.txt").write_text(MICRO)
    words = (
        "chakra et_converter --input_type Text --input_filename micro.txt --output_filename text --num_dims 1"
    )
    result = call(words)
    assert result.exit_code == 2 and "needs --num_npus" in result.stderr
    assert call(f"{words} --num_npus 2 --num_passes 1 --log_filename debug.log").exit_code == 0
    today = "chakra converter Text --input micro.txt --output today --num-npus 2 --num-passes 1"
    assert call(today).exit_code == 0
    assert Path("text.1.et").read_bytes() == Path("today.1.et").read_bytes()
