"""A measurement of a maker that is right, and of one that is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.lab.fidelity.machines import NAMES
from armillary.lab.fidelity.measure import measure, step_time
from armillary.lab.fidelity.page import draw_picture, write_page
from armillary.lab.fidelity.show import tables, write_json
from armillary.lab.learned.conditions import Value, wish
from armillary.lab.learned.corpus import Corpus, read_corpus, write_corpus
from armillary.lab.learned.requests import Request
from armillary.trace import Trace
from armillary.workload.generate import generate

CHOICES: dict[str, tuple[Value, ...]] = {
    "layers": (2, 4), "hidden": (2048, 4096), "ffn": (8192, 11008), "tp": (1, 2), "dp": (1, 2), "microbatches": (2, 3),
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("fidelity")
    (folder / "plan.yaml").write_text(
        "count: 16\nnodes: 3000\n"
        "choices: {layers: [2, 4], hidden: [2048, 4096], tp: [1, 2], dp: [1, 2], microbatches: [2]}"
    )
    write_corpus(folder / "corpus", [], [folder / "plan.yaml"])
    return read_corpus(folder / "corpus")


def right(given: Mapping[str, Value]) -> Trace:
    wished = wish(given)
    return generate(wished.model, wished.plan)


def test_a_maker_that_is_right(corpus: Corpus, tmp_path: Path) -> None:
    found = measure(corpus, right, [Request(12, 5, 3000, CHOICES)], machines=("hgx-h100", "tpuv4-pod"))
    assert len(found.compared) == 12
    assert np.abs(found.errors("time", "made")).max() == 0
    assert np.abs(found.errors("time", "nearest")).mean() > 0.02
    assert found.tests["path"]["made"].p == 1
    assert found.accuracy["made"] == 0.5
    assert found.copies == {"true": 0.0, "made": 0.0}
    assert len(tables(found)) == 3
    write_json(found, tmp_path / "found.json")
    assert (
        json.loads((tmp_path / "found.json").read_text())["errors"]["time, between the corpus, made"]["mean"]
        == 0
    )
    draw_picture(found, tmp_path / "found.png")
    write_page(found, tmp_path / "found.html")
    assert "<svg" in (tmp_path / "found.html").read_text()


def test_makers_that_are_not(corpus: Corpus) -> None:
    def wrong(given: Mapping[str, Value]) -> Trace:
        if given["tp"] == 2:
            raise InputError("not with tp")
        return right({**given, "layers": 8})

    found = measure(corpus, wrong, [Request(12, 5, 3000, CHOICES)], machines=("mi300x",))
    refused = [each for each in found.compared if each.refused]
    assert 0 < len(refused) < 12
    assert {each.refused for each in refused} == {"not with tp"}
    assert found.errors("nodes", "made").min() > 0.5
    assert len(tables(found)[-1].rows) == 1


@pytest.mark.parametrize("name", NAMES)
def test_machines_have_as_many_npus(name: str) -> None:
    trace = right({"layers": 2, "hidden": 2048, "ranks": 12, "tp": 2, "batch": 12})
    assert step_time(trace, name) > 1e5
