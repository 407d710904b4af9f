"""The program of ASTRA-sim's ns-3 back end: its flags, its inputs, its lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

FLAGS = (
    "astra-sim ns3 --workload-configuration=step --system-configuration=system.json --network-configuration=config.txt "
    "--remote-memory-configuration=memory.json --logical-topology-configuration=logical.json"
)


@pytest.fixture
def scratch(inputs: Path) -> Path:
    """Return a folder with the files of the ns-3 back end: four hosts at a switch."""
    (inputs / "star.txt").write_text("5 1 4\n4\n" + "".join(f"{i} 4 400Gbps 0.0005ms 0\n" for i in range(4)))
    maps = "".join(
        f"{key}_MAP 1 400000000000 {value}\n" for key, value in (("KMAX", 2400), ("KMIN", 800), ("PMAX", 0.2))
    )
    (inputs / "config.txt").write_text(
        f"TOPOLOGY_FILE star.txt\nCC_MODE 12\nPACKET_PAYLOAD_SIZE 1000\n{maps}"
    )
    (inputs / "logical.json").write_text('{"logical-dims": ["4"]}')
    return inputs


def test_lines_of_the_back_end_and_then_those_of_ranks(scratch, call):
    result = call(FLAGS)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "ASTRA-sim + NS3",
        "There are 4 npus: 4,",
        "QP is enabled ",
        "maxRtt=2040 maxBdp=102000",
    ]
    assert (
        all(line.startswith("[20") for line in lines[4:]) and sum("finished, " in line for line in lines) == 4
    )
    assert "network model packet of profile physical stands for ns-3" in result.stderr
    assert "There are" not in Path("log/log.log").read_text()


def test_the_same_machine_as_a_study(scratch, call):
    """The graph is that of the topology file; chunks and algorithms are the system file's."""
    times = {}
    for model in ("packet", "flow"):
        result = call(f"{FLAGS} --terse --network-model={model}")
        times[model] = int(result.stdout.split()[2])
    # Headers of 48 bytes for 1000.
    assert times["flow"] < times["packet"] < 1.2 * times["flow"]


def test_the_program_at_its_path(scratch, call):
    assert call("astra-sim install tree").exit_code == 0
    program = scratch / "tree/extern/network_backend/ns-3/build/scratch/ns3.42-AstraSimNetwork-default"
    done = subprocess.run(
        [program, *FLAGS.split()[2:], "--terse"], capture_output=True, text=True, check=False, cwd=scratch
    )
    assert done.returncode == 0 and done.stdout.startswith("sys[0] finished, "), done.stderr


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("logical.json", json.dumps({"logical-dims": ["8"]}), "star.txt: ranks are nodes 0 to 7"),
        ("logical.json", json.dumps({"dims": ["8"]}), "unknown key"),
        ("config.txt", "TOPOLOGY_FILE stra.txt\n", "stra.txt: no such file"),
        ("star.txt", "4 0 1\n0 1 400Gbps 0.005ms 0\n", "no way from npu"),
    ],
)
def test_bad_input_is_one_line(scratch, call, name, text, words):
    (scratch / name).write_text(text)
    result = call(FLAGS)
    assert result.exit_code == 2 and words in result.stderr and not Path("log").exists(), result.output
