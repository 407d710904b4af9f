"""Tables of torchtitan as studies."""
# ruff: noqa: E501

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.training import markdown, torchtitan
from armillary.evidence.validate.training.formats import read_cases

PAGE = """# Runs

Each host has 8 NVIDIA H100 GPUs of 96GB HBM2e.

### Results

In all we ran on 8 or 128 GPUs.

**Table 1** FSDP. Llama 3.1 8B model. 8 GPUs. Local batch size 2, global batch size 16. Selective activation checkpointing.

| Techniques | TPS/GPU | Memory(GiB) |
| ----- | ----: | ----: |
| FSDP | 5,000 | 82.4 |
| FSDP + torch.compile + Float8[^1] | 8,000[^1] | 76.8 |

**Table 2** FSDP + TP + PP + torch.compile + AsyncTP. Llama 3.1 405B model. 512 GPUs (FSDP 8, TP 8, PP8). Local batch size 32. Full activation checkpointing.

| Schedule | Sequence Length | TPS/GPU |
| ----- | ----: | ----: |
| Interleaved 1F1B | 16384 | 100 |
| 1F1B | 8192 | OOM |
"""
COLUMNS = """## Llama 2 performance numbers

We ran FSDP2 on 64 A100 (80GB) GPUs.

| Model size | Batch size | Activation checkpointing | WPS | MFU |
| --- | --- | --- | --- | --- |
| 13B | 2 | no | 2000 | 61.1%\t|
| 13B | 2 | selective layer | 1900 | 54.1% |
| 9B | 2 | full | 1900 | 54.1% |
| 13B | 2 | sometimes | 1900 | 54.1% |

The global batch is 128 = local batch size 2 * number of FSDP ranks 64.
"""


def write(tmp_path, text):
    path = tmp_path / "runs.md"
    path.write_text(text)
    return path


def test_facts_are_taken_from_cells_then_the_caption(tmp_path):
    first, second, deep, lost = torchtitan.cases(write(tmp_path, PAGE))
    assert first.measured == 5000 and first.npus == 8 and first.machine == "grand-teton-h100-96"
    assert (first.plan["batch"], first.plan["microbatch"], first.plan["sequence"]) == (16, 2, 8192)
    assert first.plan["compiled"] is False and second.plan["compiled"] is True
    assert first.plan["keep"] == ["q", "v", "attention", "gate"]
    assert [case.plan["numbers"]["compute"] for case in (first, second)] == ["bf16", "fp8"]
    assert any("8,192 tokens" in text for text in first.assumed)
    assert deep.plan["parallel"] == {"tp": 8, "pp": 8, "cp": 1, "overlap": True}
    assert deep.plan["pipeline"] == {"schedule": "interleaved", "virtual": 2}
    assert deep.plan["microbatch"] == 4 and deep.plan["sequence"] == 16384 and deep.model.layers == 126
    assert deep.in_unit(deep.seconds()) == pytest.approx(100)
    assert lost.model is None and "got 'OOM'" in lost.reason


def test_facts_of_a_section(tmp_path):
    whole, layers, other, unknown = torchtitan.cases(write(tmp_path, COLUMNS))
    assert whole.npus == 64 and whole.machine == "roce-a100-80" and whole.plan["sequence"] == 4096
    assert whole.plan["recompute"] == "none" and whole.plan["batch"] == 128 and whole.model.layers == 40
    assert layers.plan["recompute_every"] == 2
    assert other.model is None and "no model '9B'" in other.reason
    assert unknown.model is None and "activation checkpointing 'sometimes'" in unknown.reason


def test_sizes_must_multiply_out(tmp_path):
    (case, *_) = torchtitan.cases(
        write(tmp_path, PAGE.replace("8 GPUs. Local", "8 GPUs (FSDP 4, TP 4). Local"))
    )
    assert case.model is None and "fsdp 4 x tp 4 x pp 1 x cp 1 = 16, expected 8 GPUs" in case.reason


def test_lines_between_tables_change_nothing(tmp_path):
    known = list(torchtitan.cases(write(tmp_path, COLUMNS)))[:2]
    assert list(torchtitan.cases(write(tmp_path, "\n\n" + COLUMNS.replace("| 9B", "| 9B "))))[:2] == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# nothing", "no table with throughput"),
        ("| a | WPS |\n|---|---|\n| 1 | 2 | 3 |\n", "runs.md:3: 3 cells, expected at most the 2"),
        ("\udcff", "is not text"),
    ],
)
def test_odd_pages(tmp_path, text, said):
    path = tmp_path / "runs.md"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=said):
        list(torchtitan.cases(path))


def test_large_pages_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "LARGEST", 100)
    with pytest.raises(InputError, match="expected at most 100 B"):
        list(torchtitan.cases(write(tmp_path, PAGE)))
    monkeypatch.undo()
    monkeypatch.setattr(markdown, "MOST_ROWS", 1)
    with pytest.raises(InputError, match="more than 1 rows"):
        list(torchtitan.cases(write(tmp_path, PAGE)))


@pytest.mark.shared
def test_published_pages(shared):
    for path in (shared / "measured/torchtitan").glob("*.md"):
        if path.stem == "README":
            continue
        found, cases = read_cases(path)
        assert (
            found.name == "torchtitan" and cases and not [case.reason for case in cases if case.model is None]
        )
