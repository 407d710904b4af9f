"""The notebooks of `examples/notebooks` run from top to bottom and give what stands in them.

They are plain Python, so no Jupyter is needed. ``python tests/docs/test_notebooks.py`` writes their outputs anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as a kernel does: what it prints, and the value of a last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, "<notebook>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<notebook>", "eval"), names)
    found: list[dict[str, Any]] = []
    if out.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(out.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        found.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return found


def executed(notebook: Path) -> dict[str, Any]:
    """Return a notebook with the outputs of all cells; the working folder is a copy of its own."""
    held: dict[str, Any] = json.loads(notebook.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((each for each in held["cells"] if each["cell_type"] == "code"), 1):
        cell["outputs"] = run_cell("".join(cell["source"]), names)
        cell["execution_count"] = number
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = number
    return held


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_stands_in_it(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pytorch").symlink_to(FOLDER.parent / "pytorch")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert executed(notebook) == json.loads(notebook.read_text("utf-8"))


def test_notebooks_are_short_and_whole() -> None:
    assert len(NOTEBOOKS) == 5
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")
        assert notebook.stat().st_size < 20_000, notebook
        code = [each for each in cells if each["cell_type"] == "code"]
        assert all(each["execution_count"] == number for number, each in enumerate(code, 1)), notebook
        for each in code:
            ast.parse("".join(each["source"]))


def write() -> None:
    for notebook in NOTEBOOKS:
        os.chdir(FOLDER)
        notebook.write_text(json.dumps(executed(notebook), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write()
