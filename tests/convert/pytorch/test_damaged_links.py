"""Damage that once made the reader go round in circles, or count beyond what a float holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.convert.pytorch.link_files import read_linked, write_linked
from armillary.convert.pytorch.parents import mend_parents
from tests.convert.pytorch.recording import Recording


def recording() -> Recording:
    rec = Recording()
    for at in range(3):
        rec.op("aten::add", at * 1000, at * 1000 + 500)
    return rec


def test_parents_in_a_circle_end() -> None:
    linked = recording().linked()
    nodes = [node for node in linked.host.nodes if not node.is_structure]
    nodes[0].parent = nodes[2].parent = nodes[0].id
    mend_parents(linked)
    assert nodes[2].parent == nodes[0].id


def test_more_links_than_nodes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "joined.json"
    write_linked(path, recording().linked())
    document = json.loads(path.read_text())
    document["strategies"] = {"rf_id": 10**400}
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="does not fit"):
        read_linked(path)
