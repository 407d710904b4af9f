"""The ten changes of `docs/ten-changes.md`: each patch fits, touches few files, and does what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, Block, blocks, same, steps
from tests.newcomer.unified_diff import DoesNotFit, apply

PAGE = ROOT / "docs" / "ten-changes.md"
MOST_FILES = 4
SECTIONS = {
    match[1]: part
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]
    if (match := re.search(r"\{literalinclude\} \.\./tests/newcomer/([\w-]+)\.patch", part))
}
ALL_REDUCE = 2 * 7 / 8 * 240e6
"""Bytes that each of 8 members sends in an all-reduce of 240 MB."""
EXPECTED = {
    # Three links of 100 bytes per ns each; of which one is used at a time, and six rounds of one link.
    "topology": round(ALL_REDUCE / 100 + 6 * 500),
    # log2(8) rounds of half of the data, over a switch, which is two links away.
    "collective": round(3 * (80e6 / 2 / 50 + 2 * 500)),
    # 300 us of kernels at 75 % of their clock.
    "study-key": 400_000,
    # All-reduce in a ring, 64 chunks of the same size: 1,875,000 bytes, times 2 * 7/8.
    "column": round(ALL_REDUCE / 64),
    # 20 us, an all-reduce over 8, and 30 us.
    "front-end": round(50e3 + ALL_REDUCE / 50 + 14 * 500),
    # 2 us of launch, and 75 % of 864 GB/s.
    "device": -(-round(2e3 + 648e6 / (0.75 * 864)) // 1),
    # First all of the data over the outer dimension of 4, then a quarter over the inner one.
    "chunk-order": round(2 * 3 / 4 * 240e6 / 25 + 2 * 3 / 4 * 60e6 / 100 + 6 * 500 + 6 * 500),
    # All seven arrive at the root together, each in the time of one.
    "transport": round(80e6 / 8 / 50 + 2 * 500),
    # NPUs times the time of a ring among them; of 2, 4 and 8, two are the best.
    "objective": round(2 * (2 * 1 / 2 * 240e6 / 50 + 2 * 500)),
    "report": round(ALL_REDUCE / 50 + 14 * 500),
}
"""What follows from a closed form, ns or bytes."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in it as real folders of links, so that a change replaces a link only.

    What Python has compiled is linked, too; it knows the times of the sources, and these are followed.
    """
    root = tmp_path_factory.mktemp("package")
    source = ROOT / "src" / "armillary"
    shutil.copytree(source, root / "src" / "armillary", copy_function=os.symlink)
    return root


def run(root: Path, folder: Path, command: list[str]) -> str:
    """Run a command of a transcript with the package below `root`, and return what a terminal would show."""
    words = [sys.executable, "-m", *command] if command[0] == "armillary" else [sys.executable, *command[1:]]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "100"}
    found = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return found.stdout


def fitting(patch: Path, root: Path) -> list[Path]:
    """Apply a patch, or say how to mend it."""
    try:
        return apply(patch, root)
    except DoesNotFit as problem:
        name = patch.relative_to(ROOT)
        pytest.fail(
            f"{problem}. Refresh it: in a clean checkout, `git apply --reject {name}`, mend what is left in *.rej by "
            f"hand, `git add src && git diff --cached src > {name} && git reset --hard`",
            pytrace=False,
        )


def test_the_page_shows_ten_changes() -> None:
    patches = {path.stem for path in Path(__file__).parent.glob("*.patch")}
    assert len(SECTIONS) == 10
    assert SECTIONS.keys() == EXPECTED.keys() == patches


@pytest.mark.parametrize("name", SECTIONS)
def test_change(name: str, package: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(package, root, symlinks=True)
    touched = fitting(Path(__file__).with_name(f"{name}.patch"), root)
    for path in touched:
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
    assert 1 <= len(touched) <= MOST_FILES
    folder = tmp_path / "work"
    folder.mkdir()
    shown = ""
    for block in blocks_of(name):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "console":
            for command, expected in steps(block.text):
                got = run(root, folder, shlex.split(command))
                assert same(expected, got), f"{PAGE.name}: $ {command}\npromises\n{expected}\nbut got\n{got}"
                shown += got
    assert f"{EXPECTED[name]:,}" in shown


def blocks_of(name: str) -> list[Block]:
    """Return the blocks of the section of the page on a change."""
    first = PAGE.read_text().index(SECTIONS[name])
    lines = [PAGE.read_text().count("\n", 0, at) + 1 for at in (first, first + len(SECTIONS[name]))]
    return [block for block in blocks(PAGE) if lines[0] <= block.line <= lines[1]]


DIFF = """\
diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -2,3 +2,4 @@ def first():
 two
-three
+3
+3.5
 four
diff --git a/src/b.py b/src/b.py
new file mode 100644
--- /dev/null
+++ b/src/b.py
@@ -0,0 +1,2 @@
+new
+
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with a file for `DIFF`, which is in it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\ntwo\nthree\nfour\nfive\n")
    (tmp_path / "small.patch").write_text(DIFF)
    return tmp_path


def test_a_diff_may_have_moved(small: Path) -> None:
    old = (small / "src" / "a.py").read_text()
    (small / "src" / "a.py").write_text("two\nthree\n4\n" + "more\n" * 9 + old)
    assert apply(small / "small.patch", small) == [small / "src" / "a.py", small / "src" / "b.py"]
    expected = "two\nthree\n4\n" + "more\n" * 9 + old.replace("three", "3\n3.5")
    assert (small / "src" / "a.py").read_text() == expected
    assert (small / "src" / "b.py").read_text() == "new\n\n"


@pytest.mark.parametrize("text", ["one\ntwo\nthree\n4\n", "", "three\n"])
def test_a_diff_whose_lines_have_changed_is_refused(small: Path, text: str) -> None:
    (small / "src" / "a.py").write_text(text)
    with pytest.raises(DoesNotFit, match=r"small\.patch: hunk 1 of src/a\.py"):
        apply(small / "small.patch", small)


def test_a_diff_is_not_applied_twice(small: Path) -> None:
    apply(small / "small.patch", small)
    (small / "src" / "a.py").write_text("two\nthree\nfour\n")
    with pytest.raises(DoesNotFit, match=r"src/b\.py is there already"):
        apply(small / "small.patch", small)


def test_a_patch_that_no_longer_fits_says_how_to_refresh_it(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "src" / "armillary" / "report" / "summary.py"
    path.parent.mkdir(parents=True)
    path.write_text("nothing\n")
    (path.parent / "communication.py").write_text("nothing\n")
    with pytest.raises(pytest.fail.Exception, match=r"Refresh it: .* git diff --cached src > tests/newcomer/column"):
        fitting(Path(__file__).with_name("column.patch"), tmp_path)
