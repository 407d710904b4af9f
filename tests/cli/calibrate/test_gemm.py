"""`armillary calibrate gemm`, end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.compute.gpu.device import load_gpu
from armillary.evidence.calibrate.gemm import predicted_ns


def measured(path: Path) -> Path:
    sizes = np.array(
        [(m, n, k) for m in (64, 1000, 4096) for n in (512, 4096, 8192) for k in (512, 3000, 8192, 20_000)]
    )
    gpu = load_gpu("a100-sxm-80")
    ns = 1.1 * predicted_ns(gpu, "bf16", np.concatenate([sizes, sizes + 64]))
    rows = [
        f"{m},{n},{k},{t / 1e6}"
        for (m, n, k), t in zip(np.concatenate([sizes, sizes + 64]).tolist(), ns, strict=True)
    ]
    path.write_text("m,n,k,ms\n" + "\n".join(rows))
    return path


def test_a_device_is_written_and_used(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    path, out = measured(tmp_path / "own.csv"), tmp_path / "own.yaml"
    args = [
        str(path),
        "--device",
        "a100-sxm-80",
        "--name",
        "Our A100",
        "--columns",
        "time=ms",
        "--unit",
        "ms",
        "-o",
        str(out),
    ]
    result = CliRunner().invoke(main, ["calibrate", "gemm", *args])
    assert result.exit_code == 0, result.output
    assert "held out" in result.output and f"Wrote {out}" in result.output
    own, base = load_gpu(str(out)), load_gpu("a100-sxm-80")
    sizes = np.array([[4096, 4096, 4096]])
    assert predicted_ns(own, "bf16", sizes) == pytest.approx(
        1.1 * predicted_ns(base, "bf16", sizes), rel=0.03
    )


def test_a_bad_column_is_one_error(tmp_path: Path) -> None:
    args = [str(measured(tmp_path / "own.csv")), "--device", "a100-sxm-80", "--columns", "tim=ms"]
    result = CliRunner().invoke(main, ["calibrate", "gemm", *args])
    assert result.exit_code == 2
    assert "--columns: got 'tim=ms', expected KEY=NAME" in result.output
    assert "did you mean 'time'" in result.output
