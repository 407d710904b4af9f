"""Runs of vLLM: what was simulated from a profile is predicted from it without an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.evidence.validate import validate
from armillary.evidence.validate.vllm import read_run
from armillary.serving.load import load_requests
from armillary.serving.profile import profile_table
from armillary.serving.replica import Engine, serve_replica

SHARED = Path(__file__).resolve().parents[4] / "shared" / "measured" / "serving" / "vllm_requests"
DENSE = "layer,tokens,time_us\n" + "".join(
    f"{name},{tokens},{20 + tokens / 50}\n"
    for name in ("embedding", "final_layernorm", "layernorm", "qkv_proj", "o_proj")
    for tokens in (1, 64, 256)
)
HEAD = "layer,sequences,time_us\nlm_head,1,30\nlm_head,32,60\nsampler,1,9\nsampler,32,12\n"
ATTENTION = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + "".join(
    f"{chunk},{before},{count},{kv},{5 + chunk * (chunk + before) / 9000 + count * kv / 900}\n"
    for chunk in (0, 16, 256)
    for before in (0, 512)
    for count in (0, 1, 32)
    for kv in (0, 16, 512)
    # As profiles are: nothing stands before what is not there.
    if (chunk or not before) and bool(count) == bool(kv) and chunk + count
)
EXPERTS = "tokens,activated_experts,time_us\n" + "".join(
    f"{tokens},{active},{30 + tokens / 9 + active}\n" for tokens in (1, 16, 256) for active in (8, 32, 128)
)
Put = Callable[..., Path]
PROFILED = "../../profiles/GPU/meta-llama/Llama-3.1-8B/bf16/tp1/dense.csv"
SEQUENCES = '{"engine_kwargs": {"max_num_seqs": 0, "dtype": "bfloat16"}}'


def instance(model: str, hardware: str = "GPU") -> str:
    return json.dumps({"nodes": [{"instances": [{"model_name": model, "hardware": hardware}]}]})


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a run that was simulated, and return its folder."""

    def write(model: str = "meta-llama/Llama-3.1-8B", layers: int = 32, tp: int = 1, slower: float = 1.0,
              **meta: Any) -> Path:  # fmt: skip
        profile = tmp_path / "profiles" / "GPU" / model / "bf16" / f"tp{tp}"
        profile.mkdir(parents=True, exist_ok=True)
        experts = (128, 8) if "A3B" in model else None
        (profile / "dense.csv").write_text(DENSE)
        (profile / "per_sequence.csv").write_text(HEAD)
        (profile / "attention.csv").write_text(ATTENTION)
        if experts:
            (profile / "moe.csv").write_text(EXPERTS)
        requests = load_requests("poisson:rate=20,requests=20,input=30-300,output=1-60")
        # Two devices at 16 GB/s and 20 us, of 2 bytes for each number: each reads what the other has, below 8 MiB.
        hidden = {32: 4096, 48: 2048}[layers]
        once = np.rint((2 * layers + 1) * (np.arange(257) * hidden * 2 / 16 + 20_000)).astype(np.int64)
        # Of the logits each has a half.
        gather = np.rint(np.arange(33) * 128_256 * 2 / 2 / 16 + 20_000).astype(np.int64)
        once[0] = gather[0] = 0
        extra, last = (once, gather) if tp == 2 else (None, None)
        table = profile_table(profile, layers, 256, 32, extra_ns=extra, head_ns=last, experts=experts)
        served = serve_replica(requests, Engine(256, 32, 16, 100), table, "interpreted")
        run = tmp_path / "GPU" / "model"
        (run / "vllm").mkdir(parents=True, exist_ok=True)
        with (run / "vllm" / "requests.jsonl").open("w") as file:
            for at in range(len(requests)):
                row = {
                    "request_id": str(at), "input_toks": int(requests.prompt[at]),
                    "output_toks": int(requests.output[at]), "arrival_time": requests.arrival[at] / 1e9,
                    "queued_ts": 100 + requests.arrival[at] / 1e9, "scheduled_ts": 0,
                    "first_token_ts": 100 + served.first[at] / 1e9 * slower,
                    "last_token_ts": 100 + served.last[at] / 1e9 * slower,
                }  # fmt: skip
                file.write(json.dumps(row) + "\n")
        started = {
            "tensor_parallel_size": tp,
            "max_num_seqs": 32,
            "max_num_batched_tokens": 256,
            "dtype": "bfloat16",
        }
        said = {"engine_kwargs": started, "kv_cache": {"num_gpu_blocks": 100, "block_size": 16}} | meta
        (run / "vllm" / "meta.json").write_text(json.dumps(said))
        instance = {"model_name": model, "hardware": "GPU", "npu_mem": {"mem_size": 24, "mem_util": 0.833919}}
        config = {"link_bw": 16, "link_latency": 20000, "nodes": [{"instances": [instance]}]}
        (run / "config.json").write_text(json.dumps(config))
        return run

    return write


@pytest.mark.parametrize(
    ("model", "layers", "tp"),
    [
        ("meta-llama/Llama-3.1-8B", 32, 1),
        ("meta-llama/Llama-3.1-8B-Instruct", 32, 2),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 48, 1),
    ],
)
def test_a_run_that_was_simulated_is_predicted(model: str, layers: int, tp: int, put: Put) -> None:
    run = put(model, layers, tp)
    for table in validate(data=[run]):
        rows = (*table.rows, *table.parts[0].rows)
        assert len(table.rows) == 4 and len(table.parts[0].rows) >= 18
        # Stamps are doubles of seconds.
        assert max(abs(row.error) for row in rows) < 1e-6


def test_the_command_scores_a_folder(put: Put, tmp_path: Path) -> None:
    put(slower=1.25)
    path = tmp_path / "found.json"
    done = CliRunner().invoke(main, ["validate", "--data", str(tmp_path), "--json", str(path)])
    assert done.exit_code == 0, done.output
    tables = {each["name"]: each for each in json.loads(path.read_text())["tables"]}
    assert {*tables} == {"vllm-ttft", "vllm-tpot"}
    errors = [row["predicted"] / row["measured"] for row in tables["vllm-tpot"]["rows"]]
    assert errors == pytest.approx([0.8] * 4, rel=1e-6)


def test_blocks_follow_from_the_memory(put: Put) -> None:
    """As of the run on an RTX 4090, whose engine found 2,588."""
    found = read_run(put(kv_cache=None) / "vllm" / "requests.jsonl")
    assert found.outcome is not None and found.outcome.replicas[0].engine.blocks == 2588
    assert "2,588 blocks" in found.notes[0]


def test_several_instances_are_refused(put: Put) -> None:
    run = put()
    config = json.loads((run / "config.json").read_text())
    config["nodes"] *= 2
    (run / "config.json").write_text(json.dumps(config))
    for table in validate(data=[run]):
        assert all("several instances" in row.reason for row in table.rows)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("vllm/meta.json", "{", "is not JSON"),
        ("vllm/meta.json", "[]", "expected an object"),
        ("vllm/meta.json", "{}", "engine_kwargs: got "),
        ("vllm/meta.json", SEQUENCES, "max_num_seqs: got 0, expected a"),
        ("config.json", '{"nodes": []}', "nodes: got []"),
        ("config.json", instance("x"), "model_name: got 'x'"),
        ("config.json", instance("gnmt"), "model_name: got 'gnmt'"),
        ("config.json", instance("llama-3-8b", "../GPU"), "not below"),
        ("config.json", instance("llama-3-8b", "G"), "there is no profiles"),
        (PROFILED, "layer,token,time_us\n", "no column 'tokens'"),
        (PROFILED, "layer,tokens,time_us\na,1,-1\n", "got '-1'"),
        (PROFILED, "layer,tokens,time_us\n", "there is no row"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(file: str, text: str, words: str, put: Put) -> None:
    run = put()
    (run / file).write_text(text)
    with pytest.raises(InputError) as error:
        validate(data=[run])
    assert words in str(error.value)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file in it"):
        validate(data=[tmp_path])


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no reference data")
def test_the_measured_runs() -> None:
    ttft, tpot = validate(data=[SHARED])
    for table, mean, worst in ((ttft, 0.02, 0.02), (tpot, 0.015, 0.03)):
        assert np.mean([abs(row.error) for row in table.rows]) < mean
        assert max(abs(row.error) for row in table.rows) < worst
