"""What the pages on captures print of their example, whose capture lies in `train`.

`test_the_page_shows_what_happens` captures it anew, with PyTorch. After a change of what is recorded, capture it into
`train` again: ``armillary capture --ranks 64 --device h100 --out tests/capture/train train.py``.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.capture import read_captured
from armillary.cli import main
from armillary.cli.capture import present

ROOT = Path(__file__).parents[2]
TRAIN = Path(__file__).with_name("train")


def test_pages_show_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copytree(TRAIN, "cap")
    printed: dict[str, str] = {}
    for page in (ROOT / "docs" / "how-to" / "capture.md", ROOT / "README.md"):
        transcript = re.findall(r"^```shell-session\n(.*?)^```$", page.read_text(), re.S | re.M)[0]
        for part in re.split(r"^\$ ", transcript, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            if command not in printed:
                if command.startswith("armillary capture"):
                    present(read_captured("cap"))
                    printed[command] = capsys.readouterr().out
                else:
                    made = CliRunner().invoke(main, shlex.split(command)[1:])
                    assert made.exit_code == 0, made.output
                    printed[command] = made.stdout
            at = 0
            for piece in expected.replace("wrote cap.json\n", "").split("...\n"):
                found = printed[command].find(piece, at)
                assert found >= 0, f"{page.name}: {command}: promised\n{piece}\ngot\n{printed[command]}"
                at = found + len(piece)
