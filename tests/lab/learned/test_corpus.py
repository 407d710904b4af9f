"""Corpora: written once, the same by any number of processes, and refused where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.cli.generate.learn.describe import describe
from armillary.lab.learned.conditions import wish
from armillary.lab.learned.corpus import Corpus, read_corpus, write_corpus
from armillary.lab.learned.graphs import Layouts, graph_of_tokens
from armillary.lab.learned.requests import read_request
from armillary.trace import write_trace
from armillary.workload.generate import generate

PLAN = """
count: 20
seed: 3
nodes: 2000
choices: {layers: [2, 4], hidden: [2048], dp: [1, 2], microbatches: [1, 2, 3], ffn: [8192, 8448]}
"""


def test_records_are_the_traces(corpus: Corpus) -> None:
    layouts = Layouts.of(corpus.vocabulary)
    for record in corpus.records[::12]:
        given = {key: value for key, value in record.condition.items() if key != "microbatches"}
        wished = wish(given)
        trace = generate(wished.model, wished.plan)
        for graph, packed in zip(trace.graphs, record.classes, strict=True):
            made = graph_of_tokens(packed.tokens(), layouts, graph.source)
            assert made.names() == graph.names()
            assert np.array_equal(made.ints("tensor_size"), graph.ints("tensor_size"))


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    write_corpus(tmp_path / "one", [], [tmp_path / "plan.yaml"])
    names = sorted(path.name for path in (tmp_path / "one").glob("*.npz"))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / names[0]).write_bytes((tmp_path / "one" / names[0]).read_bytes())
    told: list[tuple[int, int]] = []
    write_corpus(tmp_path / "two", [], [tmp_path / "plan.yaml"], jobs=2, told=lambda *each: told.append(each))
    assert told == [(1, 2), (2, 2)]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_traces_in_files(tmp_path: Path) -> None:
    wished = wish({"layers": 2, "hidden": 256, "heads": 2, "ranks": 2, "tp": 2})
    trace = generate(wished.model, wished.plan)
    write_trace(tmp_path / "run", trace)
    assert write_corpus(tmp_path / "corpus", [str(tmp_path / "run")], []) == 1
    record = read_corpus(tmp_path / "corpus").records[0]
    assert record.condition == {"trace": "run", "ranks": 2}
    assert [len(packed) for packed in record.classes] == [trace.graphs[0].n_nodes]
    assert record.rank_graph == (0, 0)
    (tmp_path / "other").mkdir()
    write_trace(tmp_path / "other" / "run", trace)
    with pytest.raises(InputError, match="two traces of files are called 'run'"):
        write_corpus(tmp_path / "corpus", [str(tmp_path / "other" / "run")], [])
    write_trace(tmp_path / "other" / "rank", trace)
    prefixes = [str(tmp_path / name) for name in ("run", "other/rank")]
    assert write_corpus(tmp_path / "corpus", prefixes, []) == 2  # what was refused has spoilt nothing
    names = [record.condition["trace"] for record in read_corpus(tmp_path / "corpus").records]
    assert sorted(map(str, names)) == ["other", "run"]


def test_describe(corpus: Corpus) -> None:
    facts = json.loads(json.dumps(describe(corpus)))
    assert facts["traces"] == 48
    assert sum(row["tokens"] for row in facts["operators"]) == facts["tokens"]
    roles = {row["role"] for row in facts["operators"]}
    assert {"all-gather tp", "all-reduce dp+cp", "send pp+1", "recv pp-1"} <= roles


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("choices: {hiden: [1]}", r"choices.hiden: no such condition.*did you mean 'hidden'"),
        ("choices: {sharding: [fspd]}", r"choices.sharding: fspd, expected one of .*did you mean 'fsdp'"),
        ("choices: {hidden: []}", "no value"),
        ("count: 0\nchoices: {hidden: [2]}", "count 0: expected a positive integer"),
        ("conut: 3\nchoices: {hidden: [2]}", "conut: no such key"),
        ("[", "plan.yaml:1:2: not valid YAML"),
        ("count: 3", "choices: expected a list of values"),
    ],
)
def test_plans_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_request(tmp_path / "plan.yaml")


def test_choices_that_are_impossible(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "count: 1\nchoices: {layers: [3], hidden: [2048], pp: [4], microbatches: [2], dp: [1]}"
    )
    with pytest.raises(
        InputError, match=r"traces are still missing.*layers 3: expected one for each of 4 stages"
    ):
        write_corpus(tmp_path / "corpus", [], [tmp_path / "plan.yaml"])


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no corpus"):
        read_corpus(tmp_path / "absent")
    (tmp_path / "part.npz").write_bytes(b"junk")
    with pytest.raises(InputError, match="no part of a corpus"):
        read_corpus(tmp_path)


def test_what_cannot_be_read_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace file"):
        write_corpus(tmp_path / "corpus", [str(tmp_path / "\udcff")], [])
    assert not (tmp_path / "corpus").exists()
