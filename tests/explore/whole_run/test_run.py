"""Whole runs against published ones, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.whole_run.failures import failure_preset_names, load_failures
from armillary.explore.whole_run.goodput import Checkpoints, Recovery
from armillary.explore.whole_run.quantities import parse_tokens, seconds
from armillary.explore.whole_run.run import (
    RUNNING_BYTES,
    STATE_BYTES,
    from_flops,
    from_steps,
    npu_years,
    whole_run,
)
from armillary.workload.models import load_model, parameters

DAY = 86400.0


def test_gpt_3_takes_355_gpu_years() -> None:
    """3.14e23 FLOP at 28 TFLOP/s of a V100 (lambda.ai/blog/demystifying-gpt-3), and 6 P D gives as many FLOP."""
    work = from_flops(1024, 3.14e23, 28e12)
    assert npu_years(1024, work.seconds) == pytest.approx(355, abs=1)
    count = parameters(load_model("gpt-3-175b")).total
    assert 6 * count * 300e9 == pytest.approx(3.14e23, rel=0.01)


def test_state_of_large_models_is_tens_of_terabytes() -> None:
    count = parameters(load_model("transformer-1t")).total
    assert STATE_BYTES * count == pytest.approx(13.8e12, rel=0.03)  # arXiv 2104.04473, section 5.10
    assert RUNNING_BYTES * count == pytest.approx(18.1e12, rel=0.01)
    assert STATE_BYTES * parameters(load_model("gpt-3-175b")).total == pytest.approx(2.44e12, rel=0.01)


def test_llama_3_fails_as_often_as_it_did() -> None:
    """arXiv 2407.21783, section 3.3.4: 466 interruptions in 54 days on 16,384 GPUs, 419 of them unexpected."""
    rates = load_failures("llama-3").rates(16384)
    counts = {name: rate * 54 * DAY for name, rate in rates.items()}
    assert counts == pytest.approx(
        {"npu": 268, "host": 46, "nic": 7, "switch": 35, "software": 63, "planned": 47}, rel=1e-3
    )
    assert sum(counts.values()) == pytest.approx(466, rel=1e-3)
    assert 1 / sum(rates.values()) / 3600 == pytest.approx(54 * 24 / 466, rel=1e-3)


def test_llama_3_reaches_90_percent_if_restarts_take_at_most_13_minutes() -> None:
    failures = load_failures("llama-3")
    work = from_flops(16384, 3.8e25, 400e12)
    # 14 bytes of 405e9 parameters at 2 TB/s, the sustained rate of its storage (section 3.3.1).
    fast = Checkpoints(14 * 405.9e9 / 2e12)
    shares = [
        whole_run(work, failures, fast, Recovery(60 * minutes)).goodput.useful for minutes in (5, 10, 13, 14)
    ]
    assert shares[2] > 0.9 > shares[3] and shares == sorted(shares, reverse=True)
    assert whole_run(work, failures, fast, Recovery(300), interval=3600).goodput.useful < 0.83


def test_works_of_steps_and_spares() -> None:
    work = from_steps(64, 2.0, 1000, 10_500)
    assert (work.steps, work.seconds) == (11, 22.0)
    run = whole_run(work, load_failures("100 h"), Checkpoints(10), Recovery(60, 2, DAY))
    assert run.npus == 64 + 16 and run.goodput.waiting > 0.1
    assert run.seconds == pytest.approx(22 / run.goodput.useful)
    assert run.failures == pytest.approx(64 / 360_000 * run.seconds * (1 - run.goodput.waiting))
    short = whole_run(work, load_failures("50000 h"), Checkpoints(10), Recovery(60))
    assert short.interval == work.seconds  # the best interval is longer than the run
    calm = whole_run(work, None, Checkpoints(0), Recovery(0))
    assert calm.seconds == 22 and calm.failures == 0


def test_quantities() -> None:
    assert parse_tokens("--tokens", "15.6T") == 15.6e12 and parse_tokens("--tokens", "3.14e23") == 3.14e23
    assert seconds("9 years") == 9 * 365.25 * DAY and seconds("3033381 h") == 3033381 * 3600
    for text in ("", "-5", "0", "5 apples"):
        with pytest.raises(InputError, match="--tokens: got"):
            parse_tokens("--tokens", text)
    with pytest.raises(InputError, match="did you mean 'llama-3'"):
        load_failures("lama-3")
    with pytest.raises(InputError, match=r"components.npu.mtbf: got '5 parsecs'"):
        load_failures({"components": {"npu": {"per": "npu", "mtbf": "5 parsecs"}}})
    assert failure_preset_names() == ("llama-3",)


def invoke(*args: str) -> str:
    run = CliRunner().invoke(main, ["plan", "whole-run", *args])
    assert run.exit_code == 0, run.output
    return run.output


LLAMA = ["--flops", "3.8e25", "--rate", "400 TFLOP/s", "--ranks", "16384", "--mtbf", "llama-3"]


def test_command(tmp_path: Path) -> None:
    out, picture = tmp_path / "o.json", tmp_path / "o.png"
    shown = invoke(
        *LLAMA, "--checkpoint", "5.7 s", "--play", "--seed", "3", "--json", str(out), "--plot", str(picture)
    )
    assert "without failures      67.11 days, 3,010 NPU years on 16,384 NPUs" in shown
    found = json.loads(out.read_text())
    assert sum(found["goodput"].values()) == pytest.approx(1)
    assert found["run_s"] == pytest.approx(found["without_failures_s"] / found["goodput"]["useful_work"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    rented = invoke("--flops", "3.14e23", "--rate", "28 TFLOP/s", "--ranks", "1", "--costs", "v100-cloud")
    assert "355.4 NPU years" in rented and "$4.67" in rented


def test_a_study(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "workload: {generate: {model: llama-3-8b, batch: 8, sequence: 1024}}\n"
        "platform:\n  preset: hgx-h100\n  compute: {efficiency: 50 %}\n"
    )
    more = ["--mtbf", "20000 h", "--checkpoint-bandwidth", "1 GB/s", "--costs", "h100"]
    shown = invoke(str(study), "--tokens", "100B", *more, "--asynchronous", "2 s")
    assert "stops work for 2 s, complete 112.4 s later" in shown  # 14 bytes x 8.03e9 at 1 GB/s
    assert "cost of the whole run" in shown and "energy of the whole run" in shown


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "expected one of STUDY, --step-time and --flops"),
        (["--flops", "1e20", "--rate", "5"], "--flops needs --rate and --ranks"),
        ([*LLAMA], "--mtbf needs --checkpoint"),
        ([*LLAMA, "--checkpoint", "5"], "--checkpoint: got '5', expected a time"),
        ([*LLAMA, "--checkpoint", "0 s"], "checkpoints take no time"),
        ([*LLAMA, "--checkpoint", "5 s", "--costs", "h100"], "only npu.rent is used"),
    ],
)
def test_errors(args: list[str], message: str) -> None:
    run = CliRunner().invoke(main, ["plan", "whole-run", *args])
    assert run.exit_code == 2 and message in run.output, run.output
