"""Another program as a compute model: it works, and whatever goes wrong is one error, soon."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from armillary.base.allowed import allow
from armillary.base.errors import ConsentError, InputError
from armillary.compute.program import Program, question
from armillary.testing.compute import DEVICE, check_compute_model, part, sample_work

EXAMPLE = Path(__file__).parents[2] / "examples/compute/tensor_core.py"
WORK = part(sample_work(), [0, 1])


@pytest.fixture(autouse=True)
def consent(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Allow programs, but in the tests of the consent itself."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with allow(programs="consent" not in request.node.name):
        yield


def program(folder: Path, source: str, timeout: float = 600) -> Program:
    path = folder / "model.py"
    path.write_text(source)
    options = {"command": [sys.executable, str(path)], "timeout_ns": timeout * 1e9}
    return Program.create(options, DEVICE, folder)


def test_the_example_keeps_to_the_protocol() -> None:
    work = part(sample_work(), [0, 3, 5, 7, 25])  # every kernel is a start of Python
    check_compute_model(
        lambda: Program.create({"command": [sys.executable, str(EXAMPLE)]}, DEVICE, Path()), work
    )


def test_the_example_counts_waves() -> None:
    model = Program.create({"command": [sys.executable, str(EXAMPLE)]}, DEVICE, Path())
    times = model.durations(part(sample_work(), [0, 7]))
    waves = -(-32 * 32 // 132)
    assert times.ns[0] == pytest.approx(3000 + waves * 2 * 128 * 128 * 4096 * 132 / 1e14 * 1e9)
    assert np.isnan(times.ns[1]) and times.bound == ("waves", "waves")


def test_what_a_program_reads() -> None:
    device, first, second = question(WORK, DEVICE).splitlines()
    assert device.startswith('{"device": {"peak_flops": 100000000000000.0, ')
    assert '"gemm": [{"m": 4096, "n": 4096, "k": 4096, "batch": 1, "calls": 1}]' in first
    assert second.startswith('{"id": 1, "name": "bf16.1", "kind": "gemm", "operations": 2, "bytes": 6, ')


GOOD = 'import sys; sys.stdin.read(); print(\'{"id": 0, "ns": 1}\\n{"id": 1, "ns": null}\')'


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys; sys.exit('no licence')", "ended with exit code 1: no licence"),
        ("print('hello')", "line 1 of its answer, 'hello', is not JSON"),
        ("print('[1]')", "expected an object with id and ns"),
        ('print(\'{"id": 7, "ns": 1}\')', "id is 7, expected 0 to 1"),
        ('print(\'{"id": true, "ns": 1}\')', "id is True, expected"),
        ('print(\'{"id": 0, "ns": -1}\')', "ns is -1, expected a number of 0 or more"),
        ('print(\'{"id": 0, "ns": NaN}\')', "ns is nan"),
        ('print(\'{"id": 0, "ns": 1, "beyond": 0}\')', "expected beyond as a number of 1 or more"),
        ('print(\'{"id": 0, "ns": 1}\\n\' * 2)', "line 2 answers id 0 again"),
        ('print(\'{"id": 1, "ns": 1}\')', "answered 1 of 2 kernels, the first that lacks is id 0"),
        ("", "answered 0 of 2 kernels"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "is not UTF-8"),
        ("print('[' * 100000)", "is not JSON"),
        ("while True: print('y' * 1000)", "bytes, expected a line for each of 2 kernels"),
    ],
)
def test_a_bad_answer_is_one_error(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        program(tmp_path, source).durations(WORK)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_an_answer_may_leave_kernels_out(tmp_path: Path) -> None:
    times = program(tmp_path, GOOD).durations(WORK)
    assert times.ns[0] == 1 and np.isnan(times.ns[1])


CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])"


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(3600)",
        # The child keeps the pipe open when its parent is gone, or ends.
        f"{CHILD}; import time; time.sleep(3600)",
        CHILD,
    ],
)
def test_a_program_that_never_answers_is_stopped(tmp_path: Path, source: str) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match="gave no answer within 1 s"):
        program(tmp_path, source, timeout=1).durations(WORK)
    assert time.monotonic() - began < 600  # not until the child ends


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"program 'no-such-program' cannot be started: .*No such file"):
        Program.create({"command": ["no-such-program"]}, DEVICE, tmp_path)


def test_what_is_no_program_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(InputError, match=r"cannot be started: Exec format error"):
        Program.create({"command": ["./text"]}, DEVICE, tmp_path).durations(WORK)


# A child in a session of its own, whose parent is gone at once.
ESCAPED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        open(MARK, "w").write(str(os.getpid()))
        time.sleep(3600)
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the session of the program is ended")
@pytest.mark.parametrize("end", ["time.sleep(3600)", "pass", "raise SystemExit(3)"])
def test_nothing_that_it_has_started_is_left(tmp_path: Path, end: str) -> None:
    mark = tmp_path / "mark"
    source = f"MARK = {str(mark)!r}\n{ESCAPED}\nwhile not os.path.exists(MARK): time.sleep(0.01)\n{end}\n"
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(InputError, match=r"no answer within 1 s|exit code 3"):
        program(tmp_path, source, timeout=1).durations(WORK)
    assert not Path("/proc", mark.read_text()).exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_program_ends_with_the_process_that_asks_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "model.py").write_text(f"MARK = {str(mark)!r}\n{ESCAPED}\ntime.sleep(3600)\n")
    words = [sys.executable, str(tmp_path / "model.py")]
    source = f"""
from pathlib import Path
from armillary.compute._supervised import Supervised
import time
Supervised(Path({sys.executable!r}), {words!r}, Path({str(tmp_path)!r}))
time.sleep(3600)
"""
    asking = subprocess.Popen([sys.executable, "-c", source])
    try:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.01)
    finally:
        asking.kill()
        asking.wait()
    escaped = Path("/proc", mark.read_text())
    while escaped.exists():  # a hang is the failure
        time.sleep(0.01)


def wanted(folder: Path) -> Program:
    path = folder / "model"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return Program.create({"command": ["./model", "fast"]}, DEVICE, folder)


def test_without_consent_the_program_and_the_option_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConsentError, match=rf"program '{tmp_path}/model' \(./model fast\).*--allow-programs"):
        wanted(tmp_path)


def configure(folder: Path, text: str) -> None:
    (folder / "config/armillary").mkdir(parents=True)
    (folder / "config/armillary/config.yaml").write_text(text)


def test_consent_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "model")
    configure(tmp_path, f"programs: [{tmp_path}/link]\n")
    assert wanted(tmp_path).path == tmp_path / "model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("programs: [model]", r"programs\[0\]: got 'model', expected the absolute path"),
        ("programs: yes", "programs: got True, expected a list"),
        ("program: [/bin/sh]", "program: unknown key .*did you mean 'programs'"),
    ],
)
def test_a_configuration_with_a_mistake_is_no_consent(tmp_path: Path, text: str, said: str) -> None:
    configure(tmp_path, text)
    with pytest.raises(InputError, match=said):
        wanted(tmp_path)
