"""`armillary capture`, and `armillary run --captured`, where no PyTorch is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from armillary.base.errors import InputError
from armillary.capture.device import fake_device
from armillary.capture.rank_files import write
from armillary.cli import main
from armillary.cli.capture import present
from tests.capture.logs import CUSTOM, call, kernel, log
from tests.capture.test_trace import REDUCE, mesh_logs

Call = Callable[[str], Result]


@pytest.fixture
def call_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    return lambda words: CliRunner().invoke(main, words.split())


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    folder = tmp_path / "cap"
    folder.mkdir()
    for each in mesh_logs():
        write(folder, each)
    (folder / "capture.json").write_text(json.dumps({"done": [0, 7]}))
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("capture --out cap none.py", "none.py: no such file, expected a Python script"),
        ("capture --out cap --run some none.py", "'some' is neither 'auto' nor 'all' nor ranks such as 0,5"),
        ("capture --out cap --ranks 4 --run 4 is.py", "rank 4 is to run, expected ranks from 0 to 3"),
        ("capture --out cap --ranks 1000 --run all is.py", "1000 ranks are to run, expected at most 256"),
        ("capture --out cap --device h10 is.py", "device 'h10'"),
        ("capture is.py", "Missing option '-o' / '--out'"),
        ("run --captured cap", "--captured needs --machine"),
        ("run --captured cap --workload x --machine dgx-h100", "--captured and --workload exclude each other"),
        ("run --captured cap --pytorch x --machine dgx-h100", "--captured and --pytorch exclude each other"),
        ("run x.yaml --captured cap --machine dgx-h100", "--captured and STUDY exclude each other"),
        ("run x.yaml --host-time 5us", "--host-time is for --captured"),
        ("run --captured cap --machine dgx-h100 --host-time 5", "--host-time"),
        ("run --captured none --machine dgx-h100", "none: has no capture.json"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(words: str, message: str, call_main: Call, captured: Path) -> None:
    Path("is.py").write_text("")
    made = call_main(words)
    assert made.exit_code == 2 and message in made.stderr, made.output
    assert not Path("cap/rank_1.json.gz").exists()


def test_a_capture_runs_on_machines(call_main: Call, captured: Path) -> None:
    made = call_main("run --captured cap --machine dgx-h100 --json result.json")
    assert made.exit_code == 0, made.output
    assert (
        "on 8 NPUs" in made.stdout
        and "of which 2 were run" in made.stdout
        and "the host is ahead of the device" in made.stdout
    )
    ahead = json.loads(Path("result.json").read_text())
    made = call_main("run --captured cap --machine dgx-h100 --host-time 1ms --json slow.json")
    assert made.exit_code == 0 and "the host is ahead" not in made.stdout
    slow = json.loads(Path("slow.json").read_text())
    assert slow != ahead
    assert "CPU only" in made.stdout


def test_a_machine_of_another_size_is_refused(call_main: Call, captured: Path) -> None:
    made = call_main("run --captured cap --machine 2xdgx-h100")
    assert made.exit_code == 2 and "one of 8 ranks, but the machine has 16 NPUs" in made.stderr


def test_what_is_printed_names_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    first = log(0, 8, [kernel(), kernel(0, CUSTOM), call(0)], [tuple(range(8))], [REDUCE])
    first.assumed, first.notes = {"train.py:12": 3}, ["torch.save was left out"]
    present([first])
    out = capsys.readouterr().out
    assert "1 of 8 ranks run on h100-sxm" in out and "0 … 7 (8)" in out
    assert "Unknown operator: mine::kernel, 1 times" in out
    assert "most at train.py:12 (3)" in out and "Note: torch.save was left out" in out
    differ = mesh_logs()
    differ[1].rows.append(kernel())
    present(differ)
    assert "Ranks whose work does not follow from these: 6" in capsys.readouterr().out
    present(mesh_logs(uneven=True))
    assert "uneven shards" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "found", "capability"),
    [("h100", "h100-sxm", (9, 0)), ("a100", "a100-sxm-80", (8, 0)), ("gb200", "gb200", (10, 0))],
)
def test_a_device_has_the_capability_of_its_kind(name: str, found: str, capability: tuple[int, int]) -> None:
    device = fake_device(name)
    assert device.name == found and device.capability == capability and device.memory > 30e9


def test_a_device_that_runs_no_cuda_is_refused() -> None:
    with pytest.raises(InputError, match="device 'mi300x'"):
        fake_device("mi300x")
