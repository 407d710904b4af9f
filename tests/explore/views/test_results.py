"""`armillary sweep results` on a store that `armillary sweep` filled."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.explore.sweep.point import Row
from armillary.explore.views.stored_rows import chosen

SWEEP = """
study:
  workload: {collective: all-reduce, size: 1 MiB}
  platform:
    network: [{name: ring, topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 1 us}]
vary:
  workload.size: [1 MiB, 2 MiB]
  platform.network.ring.bandwidth: [50 GB/s, 100 GB/s]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "s.yaml").write_text(SWEEP)
    done = CliRunner().invoke(main, ["sweep", str(folder / "s.yaml"), "--executor", "serial"])
    assert done.exit_code == 0, done.output
    return folder / "s.sqlite"


def run(*words):
    return CliRunner().invoke(main, ["sweep", "results", *map(str, words)])


def test_results_are_ranked_filtered_and_written(store, tmp_path):
    result = run(
        store, "--where", "bandwidth >= 100 GB/s", "--csv", tmp_path / "r.csv", "--plot", tmp_path / "r.png"
    )
    assert result.exit_code == 0, result.output
    assert "Best 2 of 2 points: least step time" in result.output
    assert "2 points: 2 ok" in result.output
    with Path(tmp_path / "r.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["size"], row["bandwidth"]) for row in rows] == [("1 MiB", "100 GB/s"), ("2 MiB", "100 GB/s")]
    assert float(rows[0]["step_time"]) < float(rows[1]["step_time"])
    assert (tmp_path / "r.png").exists()


def test_points_of_a_store_are_compared(store):
    result = CliRunner().invoke(main, ["compare", f"{store}#1", f"{store}#0"])
    assert result.exit_code == 0, result.output
    assert "more than A" in result.output
    assert "100 GB/s" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--where", "bandwidth > 900 GB/s"], "holds for none of 4 points"),
        (["--where", "bandwith > 1"], "bandwidth"),
        (["--html", "/dev/null/x.html"], "is not a folder"),
    ],
)
def test_mistakes_are_one_message(store, words, message):
    result = run(store, *words)
    assert result.exit_code != 0
    assert message in result.output


def test_rows_without_what_an_expression_needs_are_left_out():
    rows = [
        Row(0, {"tp": 1}, "a", "ok", "", {"mfu": 0.5}),
        Row(1, {"tp": 2}, "b", "rejected", "no", {}),
        Row(2, {"tp": 4}, "c", "ok", "", {"mfu": 0.3}),
    ]
    assert [row.number for row in chosen(rows, "mfu > 0.4")] == [0]
    assert [row.number for row in chosen(rows, "tp >= 2")] == [1, 2]
    with pytest.raises(InputError):
        chosen(rows, "tpp >= 2")
