"""Attacks: rules on plain traces, learners on toys, and a small evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.lab.obfuscation.relabel import relabel
from armillary.lab.privacy.evaluate import Setting, evaluate
from armillary.lab.privacy.features import features
from armillary.lab.privacy.learners import forest, linear, nearest, ordered
from armillary.lab.privacy.obfuscate import LEVELS
from armillary.lab.privacy.population import draw
from armillary.lab.privacy.rules import attack
from armillary.lab.privacy.show import evaluation_tables, trade_off_picture
from armillary.trace import write_trace


def test_rules_read_plain_traces() -> None:
    right = dict.fromkeys(("hidden", "layers", "tp", "pp", "dp"), 0)
    runs = draw(12, seed=3)
    for run in runs:
        guesses = {guess.attribute: guess.value for guess in attack(run.trace())}
        for name in right:
            right[name] += guesses[name] == run.secret()[name]
    assert right["tp"] == right["pp"] == right["dp"] == len(runs)
    assert right["hidden"] >= 11
    assert right["layers"] >= 8


def test_rules_need_no_names_or_shapes() -> None:
    runs = draw(12, seed=3)
    traces = [relabel(run.trace(), "key")[0].trace() for run in runs]
    found = [{guess.attribute: guess.value for guess in attack(trace)}["hidden"] for trace in traces]
    assert sum(a == run.model.hidden for a, run in zip(found, runs, strict=True)) >= 6


@pytest.mark.parametrize("learner", [forest, nearest, linear])
def test_learners_learn(learner: object) -> None:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 300)
    seen = np.concatenate(
        [np.eye(3)[labels] * 4 + draws.normal(size=(300, 3)), draws.normal(size=(300, 5))], axis=1
    )
    more = (1,) if learner is forest else ()
    table = learner(seen[:200], labels[:200], seen[200:], 3, *more)  # type: ignore[operator]
    assert (table.argmax(axis=1) == labels[200:]).mean() > 0.85


def test_an_ordered_value_is_found_by_regression() -> None:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 6, 400)
    seen = draws.normal(size=(400, 30))
    seen[:, 0] += labels - seen[:, 1:4].sum(axis=1)
    table = ordered(seen[:300], labels[:300].astype(float), seen[300:], labels[:300], 6)
    assert (table.argmax(axis=1) == labels[300:]).mean() > 0.4
    seen[:, 0] = labels + seen[:, 1:4].sum(axis=1)
    table = ordered(seen[:300], labels[:300].astype(float), seen[300:], labels[:300], 6)
    assert (table.argmax(axis=1) == labels[300:]).mean() == 1


def test_features_are_finite_and_of_one_length() -> None:
    found = [features(run.trace()) for run in draw(6, seed=1)]
    assert len({len(each) for each in found}) == 1
    assert np.isfinite(found).all()


@pytest.mark.slow
def test_an_evaluation_compares_settings(tmp_path: Path) -> None:
    found = evaluate(12, seed=2, settings=(Setting("names", LEVELS[1]), Setting("level 3", LEVELS[3])))
    names, hidden = found.outcomes
    assert names.rules["hidden"] > 0.5 > hidden.rules["hidden"]
    assert names.rules["layers"] > 0.5 > hidden.rules["layers"]
    assert np.abs(names.errors).max() == 0
    assert 0 < np.abs(hidden.errors).max() <= 0.05
    assert hidden.whole > 0.8
    assert [table.row_count for table in evaluation_tables(found)] == [4, 2]
    document = json.loads(json.dumps(found.document()))
    assert [each["name"] for each in document["settings"]] == ["names", "level 3"]
    trade_off_picture(found, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_obfuscate_attack_and_restore(tmp_path: Path) -> None:
    run = draw(1, seed=3)[0]
    write_trace(tmp_path / "plain", run.trace())
    hidden, secret, report = tmp_path / "hidden", tmp_path / "map.json", tmp_path / "report.json"
    text = invoke(
        "trace", "obfuscate", tmp_path / "plain", "-o", hidden, "--names", "--map", secret, "--json", report
    )
    assert "rules find" in text
    assert json.loads(report.read_text())["obfuscation"]["times"][0]["error"] == 0
    invoke("trace", "attack", hidden, "--json", tmp_path / "guesses.json")
    guesses = json.loads((tmp_path / "guesses.json").read_text())
    assert [guess["attribute"] for guess in guesses] == ["hidden", "layers", "tp", "pp", "dp"]
    invoke("trace", "obfuscate", hidden, "-o", tmp_path / "again", "--restore", secret)
    dump = invoke("trace", "dump", tmp_path / "again.0.et")
    assert "qkv.gemm" in dump
    assert "qkv" not in invoke("trace", "dump", f"{hidden}.0.et")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "5"), "--sizes: got '5'"),
        (("--tolerance", "0 %"), "tolerance 0 %"),
        (("--totals", "0.1"), "totals 0.1"),
        (("--names", "--sizes", "5 %"), "exclude each other"),
        (("--restore", "x", "--structure"), "exclude each other"),
        (("--machine", "hgx-h1000"), "hgx-h1000"),
        (("--level", "4", "--no-structure"), "--level 4 and other strengths exclude each other"),
        (("--level", "4", "--map", "map.json"), "nothing of the original is left to name"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    write_trace(tmp_path / "plain", draw(1, seed=3)[0].trace())
    command = ["trace", "obfuscate", str(tmp_path / "plain"), "-o", str(tmp_path / "out"), *arguments]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert message in result.output + str(result.exception)
