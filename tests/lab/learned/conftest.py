"""A small corpus and its model, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.lab.learned.corpus import Corpus, read_corpus, write_corpus
from armillary.lab.learned.model import StatisticalModel
from armillary.lab.learned.train import train

PLAN = """
count: 48
seed: 0
nodes: 4000
choices:
  layers: [4, 8, 12]
  hidden: [2048, 4096, 5120]
  ffn: [8192, 11008, 14336]
  vocabulary: [50304, 128256]
  kv_heads: [4, 8, 16]
  tp: [1, 2, 4]
  pp: [1, 2]
  dp: [1, 2]
  microbatches: [2, 4, 6]
"""
EXPERTS = """
count: 64
seed: 0
nodes: 6000
choices:
  layers: [4, 5, 8]
  hidden: [2048, 4096, 5120]
  vocabulary: [50304, 128256]
  kv_heads: [4, 8, 16]
  sequence: [1024, 2048]
  tp: [1, 2]
  pp: [1, 2]
  dp: [2, 4]
  ep: [1, 2]
  experts: [8, 16, 32]
  top_k: [1, 2, 4]
  expert_size: [7168, 14336]
  microbatches: [2, 4]
"""


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    (folder / "plan.yaml").write_text(PLAN)
    assert write_corpus(folder / "corpus", [], [folder / "plan.yaml"]) == 48
    return folder / "corpus"


@pytest.fixture(scope="session")
def corpus(corpus_folder: Path) -> Corpus:
    return read_corpus(corpus_folder)


@pytest.fixture(scope="session")
def model(corpus: Corpus) -> StatisticalModel:
    return train(corpus)


@pytest.fixture(scope="session")
def experts(tmp_path_factory: pytest.TempPathFactory) -> StatisticalModel:
    """The model of mixtures of experts, some of them in uneven stages."""
    folder = tmp_path_factory.mktemp("experts")
    (folder / "plan.yaml").write_text(EXPERTS)
    write_corpus(folder / "corpus", [], [folder / "plan.yaml"])
    return train(read_corpus(folder / "corpus"))
