"""Obfuscated traces: valid, within the tolerance, and without what they hid."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.lab.privacy.machines import usual_machines
from armillary.lab.privacy.obfuscate import LEVELS, Strength, obfuscate
from armillary.lab.privacy.remains import remains
from armillary.trace import GraphBuilder, Trace, encode, load_trace, write_trace
from armillary.trace.check_ranks import check_trace
from armillary.trace.expand import expand
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.experts import ExpertLoad
from armillary.workload.plan.schema import Data, Offload, Parallel, Pipeline, Plan

MODEL = Decoder(
    name="drawn", layers=8, hidden=1024, vocabulary=8192, context=512, tied=True, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=4), mlp=Mlp(size=2816),
)  # fmt: skip
MIXED = MODEL.model_copy(update={"experts": Experts(count=8, top_k=2, size=512, dense_first=1)})
PLANS = {
    "one": (MODEL, Plan(ranks=2, batch=8)),
    "tp": (MODEL, Plan(ranks=4, batch=8, parallel=Parallel(tp=4))),
    "pp": (MODEL, Plan(ranks=8, batch=16, parallel=Parallel(pp=4), recompute="full")),
    "virtual": (MODEL, Plan(ranks=8, batch=16, parallel=Parallel(pp=4),
                            pipeline=Pipeline(schedule="interleaved", virtual=2))),
    "zero-bubble": (MODEL, Plan(ranks=8, batch=16, parallel=Parallel(pp=4, tp=2),
                                pipeline=Pipeline(schedule="zero-bubble"))),
    "fsdp": (MODEL, Plan(ranks=8, batch=16, data=Data(sharding="fsdp"))),
    "ring": (MODEL, Plan(ranks=8, batch=4, parallel=Parallel(cp=4, tp=2))),
    "experts": (MIXED, Plan(ranks=8, batch=16, parallel=Parallel(ep=4, tp=2))),
    "uneven": (MIXED, Plan(ranks=8, batch=16, parallel=Parallel(ep=4, tp=2), experts=ExpertLoad(skew=1.0))),
    "offload": (MODEL, Plan(ranks=4, batch=8, offload=Offload(optimizer=1.0))),
}  # fmt: skip


def sound(trace: Trace) -> bool:
    return not any(finding.severity == "error" for finding in check_trace(trace).all)


@pytest.mark.parametrize("name", PLANS)
def test_generated_traces_stay_valid_and_within_the_tolerance(name: str) -> None:
    trace = generate(*PLANS[name])
    machines = usual_machines(trace.n_ranks)
    before = [armillary.simulate(trace, machine.platform).total_ticks for machine in machines]
    for level, strength in LEVELS.items():
        made = obfuscate(trace, machines, strength, key=name)
        assert made.trace.grid is not None, "the trace must stay symbolic"
        assert sound(made.trace)
        assert sound(expand(made.trace))
        after = [armillary.simulate(made.trace, machine.platform).total_ticks for machine in machines]
        assert np.allclose(np.array(after) / before - 1, made.errors, atol=1e-5)
        assert np.abs(made.errors).max() <= (0 if level == 1 else 0.05)
        if level == 3:
            assert made.reached.structure
            assert made.windows


def test_files_of_ranks_are_obfuscated_alike(tmp_path: Path) -> None:
    trace = generate(*PLANS["pp"])
    write_trace(tmp_path / "rank", trace)
    files = load_trace(tmp_path / "rank")
    made = obfuscate(files, usual_machines(8), LEVELS[3], key="k")
    assert made.windows
    assert sound(made.trace)
    assert len({made.trace.graphs[graph].n_nodes for graph in made.trace.rank_graph}) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [Parallel(cp=4, tp=2), Parallel(cp=4, pp=2)])
def test_rings_in_files_do_not_show_layers(tmp_path: Path, parallel: Parallel) -> None:
    """Messages of context parallelism name ranks in files; both ends join the same ones, and layers do not show."""
    # A key chooses where windows begin, so that a single one may hit a count that is a multiple of another.
    counts: dict[str, list[int]] = {key: [] for key in "kab"}
    for layers in (8, 24):
        model = MODEL.model_copy(update={"layers": layers})
        write_trace(tmp_path / f"{layers}", generate(model, Plan(ranks=8, batch=8, parallel=parallel)))
        for key, found in counts.items():
            made = obfuscate(load_trace(tmp_path / f"{layers}"), usual_machines(8), LEVELS[3], key=key)
            assert made.windows
            assert sound(made.trace)
            found.append(made.trace.graphs[0].n_nodes)
    assert sum(max(found) < 2.5 * min(found) for found in counts.values()) >= 2
    assert max(map(max, counts.values())) < 250


def test_nothing_of_the_original_is_in_the_bytes() -> None:
    trace = expand(generate(*PLANS["experts"]))
    secrets = {name.encode() for graph in trace.graphs for name in graph.names() if name}
    secrets |= {b"gemm", b"layer", b"micro_batch"}
    for level in LEVELS:
        made = obfuscate(trace, usual_machines(8), LEVELS[level], key="k")
        written = b"".join(encode(graph) for graph in made.trace.graphs)
        assert not [secret for secret in secrets - {b"## process_group:init ##"} if secret in written]


def test_layers_do_not_show_in_the_number_of_nodes() -> None:
    counts = []
    for layers in (8, 32):
        model = MODEL.model_copy(update={"layers": layers})
        made = obfuscate(generate(model, PLANS["tp"][1]), usual_machines(4), LEVELS[3], key="k")
        counts.append(made.trace.graphs[0].n_nodes)
    assert max(counts) < 2 * min(counts)


def test_the_same_key_gives_the_same_trace() -> None:
    trace = generate(*PLANS["tp"])
    made = [
        obfuscate(trace, usual_machines(4), LEVELS[3], key=key).trace.graphs[0] for key in ("a", "a", "b")
    ]
    assert encode(made[0]) == encode(made[1]) != encode(made[2])


def test_many_ranks_stay_symbolic() -> None:
    model = MODEL.model_copy(update={"hidden": 8192, "attention": Attention(heads=64)})
    plan = Plan(ranks=32768, batch=4096, parallel=Parallel(tp=8, pp=4))
    made = obfuscate(generate(model, plan), usual_machines(32768), LEVELS[3], key="k")
    assert len(made.trace.graphs) == 4
    assert made.trace.n_ranks == 32768


@settings(max_examples=6, deadline=None)
@given(st.floats(0.005, 0.3), st.floats(0.0, 0.3), st.booleans(), st.floats(1.0, 10.0), st.integers(0, 99))
def test_any_strength_keeps_its_tolerance(
    tolerance: float, sizes: float, structure: bool, totals: float, key: int
) -> None:
    trace = generate(*PLANS["tp"])
    strength = Strength(sizes, structure, totals)
    made = obfuscate(trace, usual_machines(4), strength, tolerance=tolerance, key=str(key))
    assert np.abs(made.errors).max() <= tolerance
    assert sound(made.trace)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("compute", "all-reduce", "ring", "pair")), st.integers(1, 10**9), st.integers(1, 3)
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.integers(0, 99), st.booleans())
def test_random_programs_stay_valid(steps: list[tuple[str, int, int]], key: int, lopsided: bool) -> None:
    """Four ranks that compute, reduce, pass messages around, and send from the even ones to the odd ones."""
    graphs = []
    for rank in range(4):
        b = GraphBuilder(rank=rank)
        last: list[list[int]] = []
        for number, (kind, size, back) in enumerate(steps):
            after = last[-back] if len(last) >= back else []
            if kind == "compute" or (kind == "pair" and lopsided and rank > 1):
                found = [b.compute(f"k{number}", flops=size * (1 + rank * lopsided), bytes=size, after=after)]
            elif kind == "all-reduce":
                found = [b.all_reduce(f"r{number}", size, after=[node for nodes in last for node in nodes])]
            elif kind == "ring":
                found = [
                    b.send((rank + 1) % 4, size, number, after=after),
                    b.recv((rank - 1) % 4, size, number, after=after),
                ]
            elif rank % 2:
                found = [b.recv(rank - 1, size, number, after=after)]
            else:
                found = [b.send(rank + 1, size, number, after=after)]
            last.append(found)
        graphs.append(b.graph())
    trace = Trace.from_ranks(graphs)
    machines = usual_machines(4)
    made = obfuscate(trace, machines, LEVELS[3], key=str(key))
    assert sound(made.trace)
    assert np.abs(made.errors).max() <= 0.05
    assert all(graph.n_nodes == 0 or (graph.parents()[1] >= 0).all() for graph in made.trace.graphs)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"totals 0\.5"):
        Strength(totals=0.5)
    with pytest.raises(InputError, match="sizes 200 %"):
        Strength(sizes=2.0)
    with pytest.raises(InputError, match="tolerance 0 %"):
        obfuscate(generate(*PLANS["tp"]), usual_machines(4), LEVELS[1], tolerance=0)


def test_totals_alone_are_hidden() -> None:
    trace = generate(*PLANS["tp"])
    made = obfuscate(trace, usual_machines(4), Strength(totals=4.0), key="k")
    assert made.reached.totals > 1.2
    assert made.trace.graphs[0].n_nodes == trace.graphs[0].n_nodes
    sizes = [each.graphs[0].ints("comm_size").sum() for each in (trace, made.trace)]
    assert sizes[0] != sizes[1]


def test_what_remains_is_said() -> None:
    trace = generate(*PLANS["tp"])
    found = remains(trace, obfuscate(trace, usual_machines(4), LEVELS[3], key="k"))
    attack = {row["attribute"]: row for row in found["attack"]}
    assert attack["hidden"]["before"] == 1024
    assert attack["layers"]["before"] == 8
    assert attack["hidden"]["after"] != 1024
    assert attack["tp"]["after"] == 4
    json.dumps(found)


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["ddp4", "fsdp4", "tp2", "pp2"])
def test_collected_traces(shared: Path, folder: str) -> None:
    from armillary.convert import front_end

    trace = front_end("pytorch").convert([shared / "traces" / "torch_cpu" / folder]).trace
    names = {name.encode() for graph in trace.graphs for name in graph.names() if len(name) > 5}
    shapes = {
        text.encode()
        for graph in trace.graphs
        for position in range(0, graph.n_nodes, 7)
        for text in graph.io(position).get("inputs", ("", "", ""))[1:]
        if len(text) > 8
    }
    machines = usual_machines(trace.n_ranks)
    for level in LEVELS:
        made = obfuscate(trace, machines, LEVELS[level], key="k")
        written = b"".join(encode(graph) for graph in made.trace.graphs)
        assert not [name for name in names if name in written and b"process_group:init" not in name]
        assert not [shape for shape in shapes if shape in written and shape not in (b"['String']", b"[[]]")]
        assert np.abs(made.errors).max() <= (0 if level == 1 else 0.05)
        assert sound(made.trace) or not sound(trace)
