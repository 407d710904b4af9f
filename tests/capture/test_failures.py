"""The line that says why a script could not be captured."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from armillary.capture.failures import reason


@pytest.mark.parametrize("folder", ["project", "armillary"])
def test_the_place_is_the_innermost_line_of_the_program(folder: str, tmp_path: Path) -> None:
    script = tmp_path / folder / "train.py"
    script.parent.mkdir()
    script.write_text("import json\n\ndef read():\n    json.loads('{')\n\nread()\n")
    with pytest.raises(ValueError) as caught:
        runpy.run_path(str(script), run_name="__main__")
    assert reason(caught.value, "train.py").startswith(f"{script}:4: JSONDecodeError: ")


def test_what_is_not_installed_is_named_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import flash_attn\n")
    with pytest.raises(ImportError) as caught:
        runpy.run_path(str(script), run_name="__main__")
    assert "scaled_dot_product_attention" in reason(caught.value, "train.py")


def test_an_error_names_what_it_was_raised_from() -> None:
    error = RuntimeError("\n failed to run forward:\n args: 1")
    error.__cause__ = NotImplementedError("Could not run 'a::b' with arguments from the 'CUDA' backend.")
    found = reason(error, "a.py")
    assert "failed to run forward: because of NotImplementedError: Could not run 'a::b'" in found
    assert "register_fake" in found


def test_what_differs_from_a_real_run_is_named() -> None:
    assert (
        reason(ValueError("seven"), "a.py", ["b.py:1: gives", "c"])
        == "a.py: ValueError: seven (b.py:1: gives; c)"
    )


def test_arguments_that_a_script_refuses_are_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import argparse\nargparse.ArgumentParser().parse_args(['--none'])\n")
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script), run_name="__main__")
    assert reason(caught.value, "a.py") == f"{script}:2: SystemExit: 2: unrecognized arguments: --none"
