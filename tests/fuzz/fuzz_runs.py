"""Runs that are folders: one document is broken, and its parts become the files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from armillary.capture.rank_files import RUN, read_captured
from armillary.evidence.validate.vllm import read_run

MODEL = "meta-llama/Llama-3.1-8B"
VLLM = {
    "requests": [
        {
            "request_id": str(at), "input_toks": 40, "output_toks": 3, "arrival_time": at / 4, "queued_ts": at / 4,
            "scheduled_ts": at / 4 + 0.01, "first_token_ts": at / 4 + 0.1, "last_token_ts": at / 4 + 0.2,
        }
        for at in range(2)
    ],
    "meta": {
        "engine_kwargs": {
            "tensor_parallel_size": 1, "dtype": "bfloat16", "max_num_seqs": 8, "max_num_batched_tokens": 64,
        },
        "kv_cache": {"block_size": 16, "num_gpu_blocks": 400},
    },
    "config": {"link_bw": 16, "link_latency": 20000, "nodes": [{"instances": [
        {"model_name": MODEL, "hardware": "GPU", "npu_mem": {"mem_size": 24}},
    ]}]},
}  # fmt: skip
CAPTURED_RUN = {
    "script": "s.py",
    "digest": "",
    "arguments": [],
    "ranks": 1,
    "device": "h100-sxm",
    "step": 3,
    "done": [0],
}


def vllm_run(path: Path, profile: dict[str, str]) -> None:
    """Read a run of vLLM whose requests, settings or machine are broken."""
    raw = path.read_bytes()
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    # What is no document as a whole is a broken file of the settings.
    parts = found if isinstance(found, dict) else VLLM
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        layers = home / "profiles" / "GPU" / MODEL / "bf16" / "tp1"
        layers.mkdir(parents=True)
        for file, text in profile.items():
            (layers / file).write_text(text)
        rows = parts.get("requests")
        lines = rows if isinstance(rows, list) else [rows]
        (home / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        for part in ("meta", "config"):
            (home / f"{part}.json").write_text(json.dumps(parts.get(part)))
        if parts is VLLM:
            (home / "meta.json").write_bytes(raw)
        read_run(home / "requests.jsonl")


def captured_run(path: Path, rank: bytes) -> None:
    """Read a captured folder whose description is broken, and its one rank whole."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, RUN).write_bytes(path.read_bytes())
        Path(name, "rank_0.json.gz").write_bytes(rank)
        read_captured(name)
