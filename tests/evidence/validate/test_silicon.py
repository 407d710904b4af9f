"""Measured serving runs: which rows are served, how, and what is left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate import validate
from armillary.evidence.validate.silicon import COLUMNS, read_cases

ROW = {
    "silicon_data_source": "source_file=2026-03-25.csv; silicon_concurrency=4; measured=2026-02-03T02:34:55Z",
    "backend": "vllm", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h100_sxm", "precision": "fp8",
    "mode": "agg", "isl": "64", "osl": "10", "tp_size": "1", "attention_dp_size": "1", "moe_tp_size": "1",
    "moe_ep_size": "1", "silicon_ttft_ms": "12.5", "silicon_tpot_ms": "5.25",
}  # fmt: skip


def put(path: Path, *rows: dict[str, str]) -> Path:
    lines = [",".join((ROW | row)[name] for name in COLUMNS) for row in rows]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def source(day: str = "2026-02-03", file: str = "2026-03-25.csv", clients: int = 4) -> dict[str, str]:
    return {
        "silicon_data_source": f"source_file={file}; silicon_concurrency={clients}; measured={day}T00:00:00Z"
    }


CONVERTED = source(file="2026-04-06.csv")


@pytest.mark.slow
def test_rows_are_served_as_their_client_did(tmp_path: Path) -> None:
    path = put(
        tmp_path / "s.csv", {}, {}, {"mode": "disagg", "tp_size": ""}, {"model_path": "zhipuai/GLM-9"},
        source("2025-11-02") | {"silicon_tpot_ms": "6"},
    )  # fmt: skip
    tpot, ttft = validate(data=[path])
    assert (tpot.name, ttft.name) == ("serving-tpot", "serving-ttft")
    # Equal rows count once, and before it warmed up only times per token count.
    assert [math.isnan(row.predicted) for row in tpot.rows] == [False, False, True]
    assert [row.reason for row in tpot.rows] == ["", "", "GLM-9 is not modelled"]
    assert tpot.rows[0].predicted == tpot.rows[1].predicted and len(ttft.rows) == 2
    # Weights of 8 GB at 3.35 TB/s are a lower bound.
    assert 2.4 < tpot.rows[0].predicted < 8 and 2.4 < ttft.rows[0].predicted < 60
    assert any("1 row, prefill and decoding apart" in note for note in tpot.notes)
    assert any("1 row, before the client warmed" in note for note in ttft.notes)


@pytest.mark.parametrize(
    ("row", "devices", "dp", "reason"),
    [
        ({"tp_size": "8"}, 8, 1, ""),
        # A converter multiplied tp by ep.
        (CONVERTED | {"backend": "sglang", "tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, 8, 1, ""),
        (CONVERTED | {"tp_size": "4", "attention_dp_size": "4", "moe_ep_size": "16"}, 4, 1, ""),
        (CONVERTED | {"backend": "trtllm", "attention_dp_size": "64", "moe_tp_size": "8",
          "moe_ep_size": "8"}, 8, 8, ""),
        ({"attention_dp_size": "2"}, 2, 2, ""),
        ({"tp_size": "4", "attention_dp_size": "2"}, 8, 2, "ranks of 4 devices with requests of their own"),
        ({"precision": "int3"}, 1, 1, "precision int3 is not modelled"),
        ({"system": "abacus"}, 1, 1, "device abacus is not modelled"),
    ],
)  # fmt: skip
def test_devices_of_a_row(row: dict[str, str], devices: int, dp: int, reason: str, tmp_path: Path) -> None:
    (case,) = read_cases(put(tmp_path / "s.csv", row))
    assert (case.devices, case.dp) == (devices, dp) and case.reason.startswith(reason)
    assert bool(reason) == bool(case.reason)


def test_drafts_that_a_row_hides_are_left_out(tmp_path: Path) -> None:
    hidden = {
        **source("2026-01-14"),
        "backend": "trtllm",
        "system": "h200_sxm",
        "model_path": "deepseek-ai/DeepSeek-R1",
    }
    one, other = read_cases(put(tmp_path / "s.csv", hidden, hidden | source("2026-01-28")))
    assert "MTP" in one.left_out and not other.left_out


@pytest.mark.parametrize(
    ("key", "value"),
    [("isl", "0"), ("osl", "x"), ("tp_size", "-1"), ("silicon_tpot_ms", "0"), ("silicon_ttft_ms", "nan")],
)
def test_a_wrong_number_is_refused(key: str, value: str, tmp_path: Path) -> None:
    path = put(tmp_path / "s.csv", {}, {key: value})
    with pytest.raises(InputError, match=rf":3: {key}: got '{value}', expected"):
        validate(data=[path])


def test_scripts_name_kernels_of_experts_and_are_alike_on_blackwell(tmp_path: Path) -> None:
    minimax = {"model_path": "MiniMaxAI/MiniMax-M2.5", "tp_size": "4"}
    deepseek = {"model_path": "deepseek-ai/DeepSeek-V3", "backend": "trtllm", "tp_size": "8"}
    rows = [
        minimax | {"system": "b200_sxm"}, minimax | {"system": "gb200_sxm"}, minimax | {"system": "h200_sxm"},
        deepseek | {"system": "b200_sxm"} | source("2026-01-29"),
        deepseek | {"system": "b200_sxm"} | source("2025-12-15"),
    ]  # fmt: skip
    cases = read_cases(put(tmp_path / "s.csv", *rows))
    named = [dict(case.numbers).get("expert_kernels", "") for case in cases]
    assert named == ["triton", "triton", "", "", "deepgemm"]
    assert cases[0].numbers == cases[1].numbers and [case.device for case in cases[:2]] == ["b200", "gb200"]


@pytest.mark.parametrize(
    ("model", "system", "precision", "tp", "isl", "osl", "clients", "dp", "ep"),
    [
        ("openai/gpt-oss-120b", "h200_sxm", "fp4", 4, 1024, 1024, 4, 1, 4),
        ("openai/gpt-oss-120b", "b200_sxm", "fp4", 8, 1024, 8192, 16, 1, 8),
        ("openai/gpt-oss-120b", "b200_sxm", "fp4", 8, 8192, 1024, 16, 1, 1),
        ("openai/gpt-oss-120b", "b200_sxm", "fp4", 2, 1024, 1024, 256, 2, 2),
        ("deepseek-ai/DeepSeek-R1", "h200_sxm", "fp8", 8, 1024, 1024, 64, 1, 8),
        ("deepseek-ai/DeepSeek-R1", "h200_sxm", "fp8", 8, 8192, 1024, 64, 8, 8),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp8", 8, 1024, 1024, 64, 8, 8),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp8", 8, 8192, 1024, 64, 1, 8),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 8, 1024, 1024, 8, 1, 1),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 8, 1024, 1024, 16, 1, 8),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 8, 1024, 8192, 16, 1, 1),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 4, 1024, 1024, 32, 1, 1),
        ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 4, 1024, 1024, 256, 4, 4),
        ("meta-llama/Llama-3.1-70B", "h200_sxm", "fp8", 4, 1024, 1024, 64, 1, 1),
    ],
)  # fmt: skip
def test_early_scripts_divided_experts_and_requests_by_themselves(
    model: str, system: str, precision: str, tp: int, isl: int, osl: int, clients: int, dp: int, ep: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    """As benchmarks/*_trt_slurm.sh of InferenceMAX in October 2025 say; later rows are as they stand."""
    row = {
        "backend": "trtllm", "model_path": model, "system": system, "precision": precision, "tp_size": str(tp),
        "isl": str(isl), "osl": str(osl),
    }  # fmt: skip
    early, late = read_cases(
        put(tmp_path / "s.csv", row | source("2025-11-02", clients=clients), row | source(clients=clients))
    )
    assert (early.dp, early.ep, late.dp, late.ep) == (dp, ep, 1, 1)
    assert early.budget == (20_000 if "gpt" in model else -(-(clients + isl + 64) // 64) * 64) <= late.budget


def test_norms_are_fused_where_scripts_and_defaults_say_so(tmp_path: Path) -> None:
    deepseek, glm, qwen = "deepseek-ai/DeepSeek-V3", "zhipuai/GLM-5", "Qwen/Qwen3.5-397B-A17B"
    rows = [
        (deepseek, "h200_sxm", "fp8", True, "tuned"), (glm, "h200_sxm", "fp8", False, "tuned"),
        (glm, "b200_sxm", "fp8", True, ""), (qwen, "h200_sxm", "fp8", True, ""), (qwen, "b200_sxm", "fp8", False, ""),
        (qwen, "b200_sxm", "bf16", True, ""), (qwen, "b200_sxm", "fp4", False, ""),
    ]  # fmt: skip
    given = [
        {"backend": "sglang", "model_path": model, "system": system, "precision": precision, "tp_size": "8"}
        for model, system, precision, _, _ in rows
    ]
    cases = read_cases(put(tmp_path / "s.csv", *given, {}))
    assert [case.fused for case in cases] == [*(fused for *_, fused, _ in rows), None]
    named = [dict(case.numbers).get("expert_kernels", "") for case in cases]
    assert named == [*(kernels for *_, kernels in rows), ""]
    # GLM-5 and Qwen3.5 in fp4 have memory, steps and looks for requests of their own.
    assert (cases[6].memory, cases[6].poll, cases[5].memory, cases[5].poll) == (0.85, 30, 0.82, 10)
