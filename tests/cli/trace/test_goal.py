"""`armillary trace goal`."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.convert.goal.schedule import read_schedule


def test_text_and_binary(inputs, call):
    for name in ("x.goal", "x.bin"):
        done = call(f"trace goal step --machine study.yaml -o {name} --loggops L=500,G=0.02")
        assert done.exit_code == 0, done.output
        assert "(L 500, o 1500, g 1000, G 0.02, O 0, S 65535)" in done.stderr
        assert f"wrote {name}: 4 ranks, " in done.stderr
    assert read_schedule(Path("x.goal")) == read_schedule(Path("x.bin"))
    back = call("trace convert --from goal x.bin --loggops L=500,G=0.02 -o back")
    assert back.stderr.splitlines()[0] == done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("step --machine study.yaml -o x.txt", "x.txt: suffix '.txt', expected one of .goal, .bin"),
        ("step --machine study.yaml -o x.goal --loggops q=1", "--loggops q=1: got 'q'"),
        ("step --machine dgx-h100 -o x.goal", "4 ranks"),
        ("none --machine study.yaml -o x.goal", "none"),
    ],
)
def test_mistakes(inputs, call, words, message):
    done = call(f"trace goal {words}")
    assert done.exit_code == 2 and message in done.stderr
    assert not Path("x.goal").exists() and not Path("x.txt").exists()
