"""The keys of `platform.storage`: what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform.files.native import load_platform

GRAPH = """\
platform:
  topology: {{kind: leaf-spine, leaves: 2, spines: 2, npus_per_leaf: 2, bandwidth: 5 GB/s, latency: 1 us}}
  storage: {{bandwidth: 2 TB/s, {storage}}}
"""


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        (
            "at: spins",
            r"study.yaml:3: platform.storage.at: got 'spins', expected one of leaf, spine, .*'spine'",
        ),
        ("at: spine, readers: 2", r"study.yaml:3: platform.storage.readers: got 2, expected none"),
        ("operations: 5", r"study.yaml:3: platform.storage.operations: got 5, expected none"),
    ],
)
def test_mistakes_about_storage_are_refused_with_their_place(tmp_path: Path, storage: str, says: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(GRAPH.format(storage=storage))
    with pytest.raises(InputError, match=says):
        load_platform(path)
