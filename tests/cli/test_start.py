"""Starting the command line is quick and clean."""

from __future__ import annotations

import json
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


MOST_FILES = {"executed": 79, "imported": 97}
"""Of the package, by a run of one collective: files with a function that ran, and files that were imported."""
OTHERS = (
    "platform/topology/",
    "trace/write",
    "engine/transport",
    "engine/messages",
    "engine/astra_sim",
    "explore",
    "lab",
    "evidence",
)
"""Beginnings of files that a run on dimensions has no use for."""
COUNTED = """
import json, os, sys
from armillary import cli
home, executed = os.path.dirname(os.path.dirname(cli.__file__)), set()
def called(frame, event, arg):
    # The body of a module or a class is no function.
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home) and code.co_flags & 1:
        executed.add(os.path.relpath(code.co_filename, home))
sys.setprofile(called)
try:
    cli.main(["run", "examples/all_reduce.yaml"])
except SystemExit as end:
    assert not end.code
sys.setprofile(None)
files = [each.__file__ for name, each in sys.modules.items() if name.startswith("armillary")]
imported = {os.path.relpath(file, home) for file in files if file}
print(json.dumps({"executed": sorted(executed), "imported": sorted(imported)}), file=sys.stderr)
"""


def test_a_run_on_dimensions_loads_only_what_it_uses() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=root, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stderr.strip().splitlines()[-1])
    assert [file for file in found["imported"] if file.startswith(OTHERS)] == []
    for kind, most in MOST_FILES.items():
        assert len(found[kind]) <= most, f"{len(found[kind])} files {kind}: {found[kind]}"


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
