import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.collective.fitted import load_fit

calibrate, time = ("calibrate", "nccl"), ("collective", "time")
ROWS = "".join(
    f"8,{2**n},{20 + 2**n / 2e5:.2f},{1.75 * 2**n / (20e3 + 2**n / 200):.2f},1,1\n" for n in range(10, 31, 2)
)
TABLE = "ngpus,size_bytes,oop_us,oop_busbw_GBps,ip_us,ip_busbw_GBps\n" + ROWS


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TABLE)
    return tmp_path


def call(command, line):
    done = CliRunner().invoke(main, [*command, *line.split()])
    assert done.exit_code == 0, done.output
    return done.output


def refused(command, line):
    done = CliRunner().invoke(main, [*command, *line.split()])
    assert done.exit_code == 2, done.output
    return done.output


def test_a_fit_is_shown_and_written_and_read_again(table):
    pytest.importorskip("matplotlib")
    shown = call(calibrate, "mine.csv --device h100 --out mine.yaml --plot mine.svg --name Mine")
    assert "Mine: h100-sxm, up to 8 GPUs; 11 times of 11 cases" in shown
    assert "all-reduce" in shown
    assert "unseen sizes: mean" in shown
    assert (table / "mine.svg").exists()
    assert "constants for 11 cases" in shown
    assert load_fit("mine.yaml").time("all-reduce", 8, 1, 2**30).total_ns == pytest.approx(
        20e3 + 2**30 / 0.2e3, rel=0.1
    )
    assert "8 GPUs of a node" in call(time, "mine.yaml all-reduce --gpus-per-node 8 1MiB 64MiB")


def test_what_cannot_be_fitted_is_refused(table):
    (table / "junk.log").write_text("nothing here\n")
    assert "no times found" in refused(calibrate, "junk.log --device h100")
    assert "choose one by --device" in refused(calibrate, "mine.csv")
    assert "did you mean 'all-reduce'" in refused(calibrate, "mine.csv --device h100 --operation al-reduce")
    assert "is not a folder" in refused(calibrate, "mine.csv --device h100 --out mine.csv/where.yaml")


def test_what_a_fit_cannot_say_is_refused(table):
    assert "did you mean 'h100-sxm'" in refused(time, "h100-sx all-reduce --gpus-per-node 8 1MiB")
    assert "did you mean 'all-reduce'" in refused(time, "h100 al-reduce --gpus-per-node 8 1MiB")
    assert "at least 2 GPUs" in refused(time, "h100 all-reduce --gpus-per-node 1 1MiB")
    assert "SIZE" in refused(time, "h100 all-reduce --gpus-per-node 8 1Mb/s")
    assert "at least 1 byte" in refused(time, "h100 all-reduce --gpus-per-node 8 0B")
