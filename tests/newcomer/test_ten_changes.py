"""The ten changes of `docs/ten-changes.md`: each patch fits, touches few files, and does what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from math import ceil
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
SHARE = 2 * 7 / 8
"""Of the bytes of an all-reduce, what each of 8 members sends."""
EXPECTED = {
    # One of three links at a time, of 100 bytes per ns each; six rounds.
    "topology": f"({SHARE * 240e6 / 100 + 6 * 500:,.0f} ticks)",
    # log2(8) rounds of half of the data, over the two links of a switch.
    "collective": f"({3 * (80e6 / 2 / 50 + 2 * 500):,.0f} ticks)",
    # Each kernel ends at a whole tick.
    "study-key": f"({ceil(100e3 / 0.75) + ceil(200e3 / 0.75):,} ticks)",
    # A part of each of 64 chunks.
    "column": f" {SHARE * 256 / 64:g} MiB ",
    "front-end": f"({20e3 + SHARE * 240e6 / 50 + 14 * 500 + 30e3:,.0f} ticks)",
    "device": f"({ceil(2e3 + 650e6 / (0.75 * 864)):,} ticks)",
    # All of the data over the outer dimension of 4, a quarter over the inner one, six latencies each.
    "chunk-order": f"({2 * 3 / 4 * (240e6 / 25 + 60e6 / 100) + 12 * 500:,.0f} ticks)",
    # All messages at once, and one after the other.
    "transport": f"({10e6 / 50 + 2 * 500:,.0f} ticks)",
    # Two NPUs for the time of a ring of two.
    "objective": f" {2 * (240e6 / 50 + 2 * 500) / 1e9:g} NPU s ",
    "report": f"| exposed communication | {SHARE * 240e6 / 50 + 14 * 500:,.0f} |",
}
"""What must be in the output, from closed forms."""
MISSPELT = {
    "topology": ("hypercube.yaml", "Hypercube", "Hypercub"),
    "collective": ("bruck.yaml", "bruck", "bruk"),
    "study-key": ("clock.yaml", "clock", "clok"),
    "front-end": ("", "table", "tabel"),
    "device": ("l40s.yaml", "l40s", "l40"),
    "chunk-order": ("order.yaml", "outermost-first", "outermost"),
    "transport": ("", "uncontended", "uncontende"),
    "objective": ("sizes.yaml", "npu_seconds", "npu_second"),
    "report": ("", "--markdown", "--markdwn"),
}
"""A name in a file, or in the first command where there is none; an error then has the right one."""


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
    if command[0] == "cat":
        return (folder / command[1]).read_text()
    words = [sys.executable, "-m", *command] if command[0] == "armillary" else [sys.executable, *command[1:]]
    # Nothing in the folder of a test stands in for a module.
    own = {"PYTHONPATH": str(root / "src"), "PYTHONSAFEPATH": "1", "COLUMNS": "100"}
    environment = os.environ | own
    found = subprocess.run(
        words,
        check=False,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
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
    shown, first = "", []
    for block in blocks_of(name):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.language == "console":
            for command, expected in steps(block.text):
                words = shlex.split(command)
                got = run(root, folder, words)
                first = first or [words] * (words[0] == "armillary")
                assert same(expected, got), f"{PAGE.name}: $ {command}\npromises\n{expected}\nbut got\n{got}"
                shown += got
    assert EXPECTED[name] in shown
    if name in MISSPELT:
        changed, right, wrong = MISSPELT[name]
        if changed:
            (folder / changed).write_text((folder / changed).read_text().replace(right, wrong))
        got = run(root, folder, [wrong if word == right and not changed else word for word in first[0]])
        assert re.search(rf"error: .*\\W{re.escape(right)}\\W", got.lower()) or right in got, got


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
    with pytest.raises(
        pytest.fail.Exception, match=r"Refresh it: .* git diff --cached src > tests/newcomer/column"
    ):
        fitting(Path(__file__).with_name("column.patch"), tmp_path)
