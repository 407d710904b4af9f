"""The page on plug-ins shows one for every extension point, and each is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.extension import ExtensionPoint
from armillary.convert.front_ends import FRONT_ENDS
from armillary.explore.executor_names import EXECUTOR_NAMES
from armillary.platform.collectives import ALGORITHMS, CHUNK_ORDERS
from armillary.platform.kernels import COMPUTE_MODELS
from armillary.platform.memory import MEMORY_KINDS
from armillary.platform.network import NETWORK_MODELS

from .test_documents import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "plug-ins.md"
POINTS = (FRONT_ENDS, COMPUTE_MODELS, NETWORK_MODELS, MEMORY_KINDS, ALGORITHMS, CHUNK_ORDERS, EXECUTOR_NAMES)
MOST_LINES = 40


def test_these_are_all_extension_points() -> None:
    made = [
        path
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text().splitlines()
        if " = ExtensionPoint(" in line
    ]
    assert len(made) == len(POINTS)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.group)
def test_every_point_has_a_plug_in_that_is_checked(point: ExtensionPoint) -> None:
    files = {block.file: block.text for block in blocks(PAGE) if block.file}
    (entries,) = (text for name, text in files.items() if name.endswith("entry_points.txt"))
    line = entries.partition(f"[{point.group}]\n")[2].partition("\n")[0]
    module = line.partition(" = ")[2].partition(":")[0]
    assert f"{module}.py" in files
    checks = [block.text for block in blocks(PAGE) if block.language == "python" and "testing" in block.text]
    assert any(module in text or f'"{line.partition(" = ")[0]}"' in text for text in checks)


def test_plug_ins_are_short() -> None:
    sizes = {block.file: len(block.text.splitlines()) for block in blocks(PAGE) if block.file.endswith(".py")}
    assert len(sizes) >= 6
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}


def test_suites_are_named() -> None:
    suites = {path.stem for path in Path(ROOT / "src/armillary/testing").glob("[!_]*.py")}
    text = PAGE.read_text()
    assert {name for name in suites if f"armillary.testing.{name}" not in text} == set()
