"""Ranks that end one step early, as the first one did the same twice, against the same with all of their steps run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from armillary.capture import Log, capture_script
from armillary.capture.steps import NOTE
from tests.capture.scripts import TRAIN
from tests.capture.test_microbatches import PROGRAMS, equal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
LAYERS = """
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = None
for at in range(3):
    loss = model(torch.randn(16, 64, device="cuda")).sum()
    loss.backward()
    dist.all_reduce(loss)
    if loss.item() > 2: raise ValueError
    kept = loss.detach()
    %s
    optimizer.step()
    optimizer.zero_grad()
"""


def both(folder: Path, script: Path, words: tuple[str, ...], ranks: int) -> list[tuple[Log, Log]]:
    """Return ranks that are chosen, and the same with all of their steps run, because they were named."""
    chosen = capture_script(str(script), words, folder=folder / "chosen", ranks=ranks)
    run = [log.rank for log in chosen]
    # More are run if these wait for others.
    named = capture_script(str(script), words, folder=folder / "named", ranks=ranks, run=run)
    return [(log, next(each for each in named if each.rank == log.rank)) for log in chosen]


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("--size tiny --tp 2 --pp 2 --microbatches 6 --checkpoint --tokens 512", 16),
        ("--size tiny --tp 2 --compile --tokens 512", 8),
    ],
    ids=["stages", "compiled"],
)
def test_ranks_that_follow_the_first_one_are_recorded_as_if_they_had_run(
    tmp_path: Path, words: str, ranks: int
) -> None:
    found = both(tmp_path, PROGRAMS / "llama3.py", tuple(words.split()), ranks)
    assert all(equal(chosen, named) for chosen, named in found)
    noted = [NOTE in chosen.notes for chosen, _ in found]
    assert not noted[0] and not noted[-1] and any(noted)
    assert not any(NOTE in named.notes for _, named in found)
    assert {log.step for pair in found for log in pair} == {3}


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("pass", True),
        ("if at == 2 and rank == 0: model(kept.expand(1, 64))", False),
        ("if at == 2 and rank == dist.get_world_size() - 1: model(kept.expand(1, 64))", False),
        ("if at == 2 and rank: model(kept.expand(1, 64))", False),
    ],
    ids=["alike", "first", "last", "others"],
)
def test_ranks_run_all_steps_where_one_that_does_says_that_they_differ(
    tmp_path: Path, text: str, follows: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRAIN + LAYERS % text)
    found = both(tmp_path, script, (), 8)
    assert all(equal(chosen, named) for chosen, named in found)
    assert any(NOTE in chosen.notes for chosen, _ in found) == follows
