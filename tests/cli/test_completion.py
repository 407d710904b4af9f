"""What the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from armillary.cli import COMMANDS, main


def completed(line: str) -> set[str]:
    """Return what the last word of `line` may become; FILES stands for names of files."""
    *words, incomplete = line.split(" ")
    found = ShellComplete(main, {}, "armillary", "_ARMILLARY_COMPLETE").get_completions(words, incomplete)
    return {"FILES" if item.type in ("file", "dir") else item.value for item in found}


def test_commands() -> None:
    assert completed("") == set(COMMANDS)
    assert completed("trace ex") == {"extrapolate"}
    assert completed("generate learn s") == {"sample", "show"}
    assert completed("nonsense x") == set()


def test_a_group_with_a_command_of_its_own() -> None:
    assert {"results", "FILES"} <= completed("sweep ")
    assert {"--store", "--workers"} <= completed("sweep --")
    assert {"--where"} == completed("sweep results s.sqlite --wh")
    assert {"--trials"} == completed("plan search sweep.yaml --tri")
    assert {"llama-3-8b", "search", "FILES"} <= completed("plan ")
    assert {"--among"} == completed("plan llama-3-8b --am")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("generate train llama-3-", "llama-3-8b"),
        ("generate show ll", "llama-3-8b"),
        ("generate memory m --machine hgx", "hgx-h100"),
        ("trace replay step --machine hgx", "hgx-h100"),
        ("machine show dgx", "dgx-superpod-h100"),
        ("machine gemm hgx", "hgx-h100"),
        ("collective synthesize worm", "wormhole-galaxy"),
        ("collective time h100", "h100-sxm"),
        ("calibrate keys megatron-lm-2022 --device a100", "a100-sxm-80"),
        ("calibrate gemm x --device h100", "h100-sxm"),
        ("plan cost s.yaml --costs h1", "h100"),
        ("plan whole-run --mtbf lla", "llama-3"),
        ("run s.yaml --network-model ns", "ns3"),
        ("sweep s.yaml --executor se", "serial"),
        ("trace convert --from py", "pytorch"),
    ],
)
def test_names_that_we_know(line: str, name: str) -> None:
    assert name in completed(line)
    # A file may stand there, too, unless the choices are all there is.
    closed = any(option in line for option in ("--network-model", "--executor", "--from"))
    assert ("FILES" in completed(line)) == (not closed)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from armillary.cli import main; main()"],
        env=os.environ | {"_ARMILLARY_COMPLETE": f"{shell}_source"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_ARMILLARY_COMPLETE=" in done.stdout and "armillary" in done.stdout
