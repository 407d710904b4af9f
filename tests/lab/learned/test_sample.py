"""Made traces: equal to generated ones where the corpus has none, valid, and refused where they cannot be."""

from __future__ import annotations

import io
import zipfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.cli.generate.learn.describe_model import model_tables, role_table
from armillary.lab.learned.agreement import check_agreement
from armillary.lab.learned.archive import checksum
from armillary.lab.learned.conditions import read_settings, wish
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.expressions import Rule
from armillary.lab.learned.model import StatisticalModel
from armillary.lab.learned.model_file import VERSION, load_model_file, save_model
from armillary.lab.learned.requests import completed
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.tokens import tokens_of
from armillary.lab.learned.train import train
from armillary.lab.learned.vocabulary import Vocabulary
from armillary.trace import GraphBuilder, Trace, write_trace
from armillary.trace.check_ranks import check_trace
from armillary.trace.expand import expand
from armillary.workload.generate import generate

NEW = st.fixed_dictionaries(
    {
        "layers": st.sampled_from((6, 10, 14, 20)), "hidden": st.sampled_from((3072, 4608)),
        "ffn": st.sampled_from((9216, 12288)), "vocabulary": st.sampled_from((64000, 100352)),
        "kv_heads": st.sampled_from((4, 12)), "tp": st.sampled_from((1, 2, 4)), "pp": st.sampled_from((1, 2)),
        "dp": st.sampled_from((1, 2)), "microbatches": st.sampled_from((3, 5)),
    }
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(condition=NEW)
def test_conditions_between_and_beyond(model: StatisticalModel, condition: dict[str, Any]) -> None:
    wished = wish(completed(condition))
    true = generate(wished.model, wished.plan)
    made = Sampler(model).sample(condition)
    assert made.total_nodes == pytest.approx(true.total_nodes, rel=0.03)
    found = check_trace(expand(made))
    assert not found.ranks
    assert not any(found.graphs)
    for one, other in zip(true.graphs, made.graphs, strict=True):
        if one.n_nodes == other.n_nodes:
            for name in ("num_ops", "tensor_size", "comm_size"):
                assert other.ints(name).sum() == pytest.approx(one.ints(name).sum(), rel=0.03)


def test_counts_that_no_rule_explains_are_named(model: StatisticalModel) -> None:
    condition: dict[str, Any] = {"layers": 8, "tp": 2, "pp": 2, "dp": 2, "microbatches": 4}
    assert Sampler(model).sample(condition).about["learned"]["guessed"] == []
    doubtful = deepcopy(model)
    for program in doubtful.programs.values():
        for shape in program.shapes:
            shape.times[:] = [Rule(rule.for_(condition).expression, exact=False) for rule in shape.times]
    assert Sampler(doubtful).sample(condition).about["learned"]["guessed"] == ["the step"]


def test_a_condition_of_the_corpus(model: StatisticalModel) -> None:
    condition: dict[str, Any] = {
        "layers": 8, "hidden": 4096, "ffn": 11008, "vocabulary": 50304, "kv_heads": 8, "tp": 2, "pp": 2, "dp": 2,
        "microbatches": 4,
    }  # fmt: skip
    wished = wish(completed(condition))
    for one, other in zip(
        generate(wished.model, wished.plan).graphs, Sampler(model).sample(condition).graphs, strict=True
    ):
        assert one.names() == other.names()
        assert all(np.array_equal(a, b) for a, b in zip(one.parents()[:2], other.parents()[:2], strict=True))
        assert np.array_equal(one.ints("micro_batch"), other.ints("micro_batch"))


@settings(max_examples=15, deadline=None)
@given(
    condition=st.fixed_dictionaries(
        {
            "layers": st.sampled_from((6, 7)), "hidden": st.sampled_from((3072, 6144)), "vocabulary": st.just(64000),
            "kv_heads": st.sampled_from((4, 8)), "sequence": st.just(1536), "tp": st.sampled_from((1, 2)),
            "pp": st.sampled_from((1, 2)), "dp": st.sampled_from((2, 4)), "ep": st.sampled_from((1, 2)),
            "experts": st.sampled_from((12, 24)), "top_k": st.just(3), "expert_size": st.just(8192),
            "microbatches": st.sampled_from((3, 5)),
        }
    )
)  # fmt: skip
def test_experts(experts: StatisticalModel, condition: dict[str, Any]) -> None:
    """Made traces of experts, in uneven stages, too, are the generated ones."""
    wished = wish(completed(condition))
    true = generate(wished.model, wished.plan)
    made = Sampler(experts).sample(condition)
    assert not check_trace(expand(made)).ranks
    for one, other in zip(true.graphs, made.graphs, strict=True):
        assert one.names() == other.names()
        assert np.array_equal(one.int_lists("attention")[0] >= 0, other.int_lists("attention")[0] >= 0)
        assert [one.int_lists("attention")[1][0]] == [other.int_lists("attention")[1][0]]
        for name in ("num_ops", "tensor_size", "comm_size"):
            assert np.allclose(one.ints(name), other.ints(name), rtol=1e-6)


def test_experts_are_asked_for_as_they_were_learned(experts: StatisticalModel) -> None:
    """The corpus divides experts as tp does and has no shared ones."""
    known = {"experts": 8, "top_k": 2, "hidden": 4096, "expert_size": 7168, "dp": 2, "microbatches": 2}
    Sampler(experts).sample(known)
    for key in ("etp", "shared_experts"):
        with pytest.raises(InputError, match=f"{key} 1: not in the corpus of the model, expected 0"):
            Sampler(experts).sample({**known, key: 1})
    with pytest.raises(InputError, match="not in the corpus of the model, expected"):
        Sampler(experts).sample({**known, "experts": 0, "top_k": 0})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["sharding=fsdp"], "sharding fsdp: not in the corpus of the model, expected ddp"),
        (["layers=1", "pp=2", "ranks=2"], "layers 1: expected one for each of 2 stages"),
        (["experts=8"], "experts 8: not in the corpus of the model, expected 0"),
        (["experts=8", "ep=3", "ranks=3"], "ep 3: expected a divisor of experts 8"),
        (
            ["experts=8", "expert_size=64", "dp=2"],
            "experts 8, expert_size 64, ep 1, etp 1: gradients of a layer",
        ),
        (["ep=2"], "ep 2: 'learned' has no experts"),
        (["hidden=512", "heads=4", "ranks=8"], "layers that share one are not learned"),
        (["cp=2"], "cp 2: not in the corpus"),
        (["hiden=512"], "hiden: no such condition.*did you mean 'hidden'"),
        (["microbatches=1"], "no program of this kind in the corpus"),
        (["layers"], "--set layers: expected key=value"),
        (["tp=0"], "tp 0: expected a positive integer"),
        (["trace=ddp"], "trace ddp: not in the corpus"),
        (["tp=3", "ranks=3"], "tp 3: expected a divisor of heads"),
    ],
)
def test_what_is_refused(model: StatisticalModel, texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampler(model).sample(read_settings(texts))


def test_stages_must_agree() -> None:
    vocabulary = Vocabulary()
    sender, receiver = GraphBuilder(), GraphBuilder()
    for builder, kind, end, steps in ((sender, 5, "comm_dst", 1), (receiver, 6, "comm_src", -1)):
        attrs = [("comm_size", "int64", 8 * kind), ("comm_axis", "string", "pp"), (end, "int32", steps)]
        builder.add("message", kind, attrs)
    with pytest.raises(InputError, match="stage 0 would send along pp"):
        check_agreement([tokens_of(each.graph(), vocabulary) for each in (sender, receiver)], vocabulary)


def test_model_files(model: StatisticalModel, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model.npz")
    again = load_model_file(tmp_path / "model.npz")
    assert (again.programs, again.roles, again.domain, again.about) == (
        model.programs, model.roles, model.domain, model.about,
    )  # fmt: skip
    save_model(again, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()
    assert len(model_tables(again)) == 3
    assert role_table(again, "optimizer").row_count > 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("junk", "no model, expected a model that `armillary generate learn train` wrote"),
        ("pickle", "no model, expected a model that `armillary generate learn train` wrote"),
        ("absent", "cannot be read"),
        ("old", "version 2, expected version 3: train it again"),
        ("new", "version 7, expected a model that"),
        ("checksum", "was changed or damaged after it was written"),
        ("sums", "sums: ptr: expected an offset for each sum"),
        ("coefficient", r"sums: coefficients \[inf\], expected numbers of at most 1e\+18"),
        ("choice", r"programs\[0\]: choice 99999 of"),
        ("huge", r"domain.layers\[0\]: 1{26}, expected a number of at most 9007199254740992"),
        ("nan", "shared: NaN, expected a number of at most"),
        ("infinite", "shared: 1e400, expected a number of at most"),
        ("constant", r"programs\[0\]: constant 1000000, expected an integer from -99 to 99"),
        ("deep", "domain.layers.*: nested too deeply, expected at most 64 levels"),
        ("deeper", "header: nested too deeply"),
    ],
)
def test_files_that_are_no_models(model: StatisticalModel, tmp_path: Path, damage: str, message: str) -> None:
    path = tmp_path / "model.npz"
    save_model(model, path)
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    text = arrays["header"].tobytes().decode()
    layers = '"layers": ['
    texts = {
        "old": text.replace(f'"version": {VERSION}', '"version": 2'),
        "new": text.replace(f'"version": {VERSION}', '"version": 7'),
        "checksum": text.replace(", 4096", ", 4097", 1),
        "choice": text.replace("[0, 1.0]", "[99999, 1.0]"),
        "huge": text.replace(layers, f"{layers}{'1' * 26}, ", 1),
        "nan": text.replace('"shared": 0.0', '"shared": NaN'),
        "infinite": text.replace('"shared": 0.0', '"shared": 1e400'),
        "constant": text.replace('["constant", "", "", 1, 0,', '["constant", "", "", 1000000, 0,', 1),
        "deep": text.replace(layers, f"{layers}{'[' * 100}{']' * 100}, ", 1),
        "deeper": text.replace(layers, f"{layers}{'[' * 100_000}{']' * 100_000}, ", 1),
    }
    if damage == "pickle":
        arrays["header"] = np.array([{"a": 1}], object)
    elif damage == "sums":
        arrays["ptr"] = arrays["ptr"][:-1]
    elif damage == "coefficient":
        arrays["coefficients"][0] = np.inf
    elif damage in texts:
        assert texts[damage] != text
        arrays["header"] = np.frombuffer(texts[damage].encode(), np.uint8)
    if damage not in ("pickle", "checksum"):
        arrays["checksum"] = np.frombuffer(checksum(arrays).encode(), np.uint8)
    np.savez(path, **arrays)
    if damage == "junk":
        path.write_bytes(b"no archive")
    elif damage == "absent":
        path.unlink()
    with pytest.raises(InputError, match=message) as error:
        load_model_file(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_an_array_that_claims_more_than_it_has(model: StatisticalModel, tmp_path: Path) -> None:
    path, header = tmp_path / "model.npz", io.BytesIO()
    save_model(model, path)
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.npy", header.getvalue() + b"12345678")
    with pytest.raises(InputError, match="more: has 8 bytes, expected 9007199254740992"):
        load_model_file(path)


def test_measured_traces(tmp_path: Path) -> None:
    """Programs stay as they are; durations are drawn with the spread between ranks, and sizes are not."""
    rng = np.random.default_rng(0)
    graphs = []
    for _ in range(4):
        builder = GraphBuilder()
        last: list[int] = []
        for layer in range(40):
            attrs = [("is_cpu_op", "bool", False), ("duration_ns", "int64", int(1e5 * rng.lognormal(0, 0.3)))]
            last = [builder.add(f"work {layer}", 4, attrs, after=last)]
        rare = [("is_cpu_op", "bool", False), ("duration_ns", "int64", int(1e5 * rng.lognormal(0, 9)))]
        if not graphs:
            builder.add("one rank only", 4, rare, after=last)
            builder.add("one rank only", 4, rare, after=last)
        builder.all_reduce("sum", "1 MiB", after=last)
        graphs.append(builder.graph())
    write_trace(tmp_path / "run", Trace.from_ranks(graphs))
    write_corpus(tmp_path / "corpus", [str(tmp_path / "run")], [])
    learned = train(read_corpus(tmp_path / "corpus"))
    assert 0.15 < np.std(learned.spread["work #"]) < 0.4
    save_model(learned, tmp_path / "model.npz")
    sampler = Sampler(load_model_file(tmp_path / "model.npz"))
    plain, drawn = sampler.sample({"trace": "run"}), sampler.sample({"trace": "run"}, temperature=1, seed=2)
    for graph, one, other in zip(graphs, plain.graphs, drawn.graphs, strict=True):
        assert np.array_equal(graph.ints("duration_ns"), one.ints("duration_ns"))
        assert not np.array_equal(graph.ints("duration_ns"), other.ints("duration_ns"))
        assert np.array_equal(graph.ints("comm_size"), other.ints("comm_size"))
        assert other.ints("duration_ns").sum() == pytest.approx(graph.ints("duration_ns").sum(), rel=0.3)
        alone = np.array(graph.names()) == "one rank only"
        assert np.array_equal(graph.ints("duration_ns")[alone], other.ints("duration_ns")[alone])
    with pytest.raises(InputError, match="ranks 8: trace run has 4"):
        sampler.sample({"trace": "run", "ranks": 8})


def test_what_no_ranks_did_twice_is_not_drawn(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.add("work", 4, [("duration_ns", "int64", 1000)])
    write_trace(tmp_path / "run", Trace.from_ranks([builder.graph()]))
    write_corpus(tmp_path / "corpus", [str(tmp_path / "run")], [])
    sampler = Sampler(train(read_corpus(tmp_path / "corpus")))
    assert sampler.sample({"trace": "run"}).total_nodes == 1
    with pytest.raises(InputError, match=r"temperature 1: the corpus has no ranks .* of run can be compared"):
        sampler.sample({"trace": "run"}, temperature=1)


def test_unequal_stages_are_refused_where_the_corpus_has_none(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "count: 12\nseed: 0\nchoices: {layers: [4, 8], pp: [1, 2, 4], microbatches: [2, 4], dp: [1, 2]}\n"
    )
    write_corpus(tmp_path / "corpus", [], [plan])
    sampler = Sampler(train(read_corpus(tmp_path / "corpus")))
    assert sampler.sample({"layers": 6, "pp": 2, "dp": 2, "batch": 8}).n_ranks == 4
    with pytest.raises(InputError, match=r"layers 6: no stages that differ .* expected a multiple of pp 4"):
        sampler.sample({"layers": 6, "pp": 4, "dp": 2, "batch": 16})
