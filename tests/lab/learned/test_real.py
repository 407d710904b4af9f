"""Real PyTorch runs, from files to a corpus, a model, and traces made with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.convert import front_end
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.train import train
from armillary.platform import load_platform
from armillary.trace import Trace, write_trace

pytestmark = pytest.mark.shared

RUNS = ("ddp4", "fsdp4", "tp2", "pp2")


@pytest.fixture(scope="module")
def runs(shared: Path) -> dict[str, Trace]:
    return {run: front_end("pytorch").convert([shared / "traces/torch_cpu" / run]).trace for run in RUNS}


@pytest.fixture(scope="module")
def sampler(runs: dict[str, Trace], tmp_path_factory: pytest.TempPathFactory) -> Sampler:
    folder = tmp_path_factory.mktemp("real")
    for run, trace in runs.items():
        (folder / run).mkdir()
        write_trace(folder / run / "rank", trace)
    assert write_corpus(folder / "corpus", [str(folder / run / "rank") for run in RUNS], []) == len(RUNS)
    return Sampler(train(read_corpus(folder / "corpus")))


def ticks(trace: Trace) -> int:
    network = [{"topology": "Switch", "size": trace.n_ranks, "bandwidth": "10 GB/s", "latency": "5 us"}]
    return armillary.simulate(trace, load_platform({"network": network})).total_ticks


@pytest.mark.parametrize("run", RUNS)
def test_programs_stay_and_times_vary(runs: dict[str, Trace], sampler: Sampler, run: str) -> None:
    true = runs[run]
    assert ticks(sampler.sample({"trace": run})) == ticks(true)
    drawn = [sampler.sample({"trace": run}, seed=seed, temperature=1) for seed in range(7)]
    for name in ("num_ops", "tensor_size", "comm_size"):
        assert all(
            np.array_equal(one.ints(name), other.ints(name))
            for one, other in zip(true.graphs, drawn[0].graphs, strict=True)
        )
    shares = [ticks(trace) / ticks(true) for trace in drawn]
    assert len(set(shares)) == len(shares)
    assert 0.7 < np.median(shares) < 1.4


def test_tokens_are_those_of_the_traces(runs: dict[str, Trace], sampler: Sampler) -> None:
    assert sampler.model.about["tokens"] == sum(trace.total_nodes for trace in runs.values())
