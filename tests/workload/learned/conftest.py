"""A small corpus and its model, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.workload.learned.corpus import Corpus, read_corpus, write_corpus
from armillary.workload.learned.model import StatisticalModel
from armillary.workload.learned.train import train

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
