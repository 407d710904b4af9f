"""Starting the command line is quick and clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from armillary.cli import COMMANDS

HEAVY = ("numpy", "numba", "pydantic", "rich", "yaml", "matplotlib", "json.decoder")
ARMILLARY = (sys.executable, "-m", "armillary")


def test_help_imports_nothing_heavy() -> None:
    source = (
        "import sys\nfrom armillary.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print(len(sys.modules), [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    count, heavy = done.stderr.strip().split(" ", 1)
    assert heavy == "[]"
    assert int(count) < 200  # of which click brings most
    assert all(name in done.stdout for name in COMMANDS)


def test_a_run_on_dimensions_imports_no_networks_and_no_other_engine() -> None:
    source = (
        "import sys\nfrom armillary.cli import main\n"
        "try:\n    main(['run', 'examples/all_reduce.yaml'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print([name for name in sys.modules if name.startswith(('armillary.platform.topology.', "
        "'armillary.trace.write', 'armillary.engine.transport', 'armillary.engine.messages', "
        "'armillary.engine.astra_sim'))], file=sys.stderr)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page(command: str) -> None:
    done = subprocess.run([*ARMILLARY, command, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Usage: armillary {command}")
    assert COMMANDS[command].split(",")[0].split(":")[0] in done.stdout.replace("\n ", "")


def test_version() -> None:
    done = subprocess.run([*ARMILLARY, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "armillary"


def test_a_closed_pipe_is_quiet(inputs: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m armillary collective show direct --ranks 32 | head -1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_debug_shows_the_traceback(inputs: Path) -> None:
    words = [*ARMILLARY, "explain", "nothing.npz"]
    plain = subprocess.run(words, capture_output=True, text=True, check=False)
    assert plain.stderr.startswith("armillary: error: nothing.npz") and plain.returncode == 2
    shown = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"ARMILLARY_DEBUG": "1"}
    )
    assert "Traceback" in shown.stderr


def test_ctrl_c_leaves_nothing_half_written(inputs: Path) -> None:
    before = set(inputs.iterdir())
    script = (
        # A shell in the background hands down that interrupts are ignored.
        "import signal, time, armillary.cli.outputs as outputs\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def slow(*_, **__):\n    print('ready', flush=True)\n    time.sleep(3600)\n"
        "outputs.Outputs.present = slow\n"
        "from armillary.cli import main\nmain(['run', 'study.yaml', '--json', 'out.json'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors.strip() == "armillary: interrupted"
    assert set(inputs.iterdir()) == before
