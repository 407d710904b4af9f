"""The examples run as their comments say."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples with their traces written."""
    copy = tmp_path_factory.mktemp("work") / "examples"
    shutil.copytree(EXAMPLES, copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        runpy.run_path("write_traces.py", run_name="__main__")
    return copy


@pytest.mark.parametrize("study", [path.name for path in sorted(EXAMPLES.glob("*.yaml"))])
def test_study_runs(study: str, folder: Path) -> None:
    result = CliRunner().invoke(main, ["run", str(folder / study)])
    assert result.exit_code == 0, result.output
    assert "Step time " in result.stdout
