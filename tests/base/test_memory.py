"""Work that needs more memory than there is is refused, with the estimate and what to change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from armillary.base import allowed
from armillary.base.allowed import allow, available, require
from armillary.base.errors import ShortageError
from armillary.engine import check_memory
from armillary.trace import GraphBuilder, Trace, load_trace, write_trace


def test_there_is_some() -> None:
    assert 0 < available() < 1 << 62
    require(1e6, "nothing much", "nothing")


def test_what_is_too_much_names_the_estimate_and_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "available", lambda: 1 << 30)
    with pytest.raises(ShortageError) as caught:
        require(3 << 30, "this", "fewer ranks")
    assert str(caught.value) == (
        "this takes about 3 GiB of memory, and there are 1 GiB; expected fewer ranks (ARMILLARY_LIMITS=3.1 raises "
        "all limits)"
    )
    assert caught.value.exit_code == 4
    with allow(limits=3.1):
        require(3 << 30, "this", "fewer ranks")
    monkeypatch.setattr(allowed, "available", lambda: 1 << 40)
    with pytest.raises(ShortageError, match=r"about 9.313 GiB of memory, and at most 7.451 GiB are allowed"):
        require(1e10, "this", "fewer ranks")


def small_trace(ranks: int = 2) -> Trace:
    builder = GraphBuilder()
    for _ in range(100):
        builder.compute("gemm", flops=1, bytes=1)
    return Trace.replicate(builder.graph(), ranks)


def test_a_run_is_refused_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = small_trace(1000)
    write_trace(tmp_path / "w", trace)
    monkeypatch.setattr(allowed, "available", lambda: 1 << 25)
    monkeypatch.setattr(allowed, "SMALL", 0)
    check_memory(trace, fold=True)
    with pytest.raises(
        ShortageError, match=r"simulating 100,000 nodes of all ranks takes about .*or folding"
    ):
        check_memory(trace, fold=False)
    load_trace(tmp_path / "w", 1)
    with pytest.raises(ShortageError, match=r"w.0.et: has 10\d nodes, whose simulation takes about .* GiB"):
        load_trace(tmp_path / "w", 1, bytes_per_node=1e9)


PROGRAM = """
import resource, sys
import armillary.cli, armillary.trace
resource.setrlimit(resource.RLIMIT_AS, (int({most}), int({most})))
def fail(*_, **__):
    {end}
armillary.trace.load_trace = fail
from armillary.cli import main
main(["run", "--workload", "w", "--machine", "dgx-h100"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")
@pytest.mark.parametrize("end", ["return bytearray(1 << 40)", "import numpy; return numpy.ones(1 << 40)"])
def test_memory_that_ends_is_one_line(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(most=4 << 30, end=end)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("armillary: error: not enough memory") and done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")
def test_the_limit_of_a_process_counts() -> None:
    source = """
import resource
from armillary.base.allowed import available
resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
assert 0 < available() < 1 << 31
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_the_limit_of_a_control_group_counts(tmp_path: Path) -> None:
    for name, text in {
        "max": "1000000",
        "current": "900000",
        "stat": "active_file 50000\ninactive_file 1",
    }.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert allowed.left_in_group(tmp_path, "memory.max", "memory.current") == 150_001
    (tmp_path / "memory.max").write_text("max\n")
    assert allowed.left_in_group(tmp_path, "memory.max", "memory.current") > 1 << 60
