"""What is printed, drawn and written."""

import json
import re

import pytest
from click.testing import CliRunner

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.cli.outputs import show_table
from armillary.evidence.validate import validate
from armillary.evidence.validate.page import write_html
from armillary.evidence.validate.picture import picture
from armillary.evidence.validate.show import bar_texts, percent, quantity, shown
from armillary.evidence.validate.table import Bar, Row, Table


@pytest.fixture
def call(made_up, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda words: CliRunner().invoke(main, ["validate", *words.split()])


def test_tables(call):
    lines = call("").stdout.splitlines()
    assert re.match(r"made-up +blind +3 of 4 +15.0 % +30.0 % +10.0 % +1.000 +≤ 15 % +missed", lines[1])
    assert lines[2].split() == ["worst", "≤", "30", "%"]
    assert re.match(r"  one left out +held out +1 +10.0 % +10.0 % +10.0 % +- +≤ 20 % +met", lines[3])
    assert "small     2        0   7.5 %  10.0 %   7.5 %   +2.2 %       50.0 %" in lines
    assert "50.0 % of the measurements lie in the stated intervals" in lines
    assert lines[lines.index("1 of 4 rows refused:") + 1] == "  1  no data of fp4"
    assert "* A note." in lines
    assert lines[-1] == "1 met, 1 missed, 0 shown, 2 skipped"
    assert any(line.startswith("skipped wider: no 'wide/some.csv'") for line in lines)
    assert max(map(len, lines)) <= 100


def test_rows_come_worst_first(call):
    text = call("made-up --rows").stdout
    places = [text.index(label) for label in ("1 GiB ", "1 [MiB] <b>", "2 MiB", "2 GiB")]
    assert places == sorted(places)
    assert re.search(r"1 \[MiB\] <b>\s+small\s+100 us\s+110 us\s+90 … 120 us\s+\+10.0 %", text)
    assert re.search(r"2 GiB\s+large\s+2,000 us\s+refused\s+-", text)


def test_status(call, tmp_path):
    (tmp_path / "good.csv").write_text("# GPUs,time (ms)\n1,2\n")
    assert call("").exit_code == 0
    assert call("--check").exit_code == 1
    assert call("--check --data good.csv").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("made-pu", "no validation 'made-pu' (did you mean 'made-up'?)"),
        ("--data none.csv", "none.csv: cannot be read"),
        ("--measured none", "there is no folder 'none'"),
        ("--measured . --data a.csv", "--measured has no use"),
        ("--json /dev/null/a.json", "is not a folder"),
        ("--json a.html --html a.html", "writes the same file"),
        ("--html a.txt", "expected '.html'"),
        ("--plot a.txt", "expected one of .png, .svg, .pdf"),
    ],
)
def test_errors(call, words, message):
    done = call(words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_list(call):
    lines = [line.split() for line in call("--list").stdout.splitlines()]
    assert lines[1:4] == [
        ["made-up", "Made", "up"],
        ["published", "numbers"],
        ["columns:", "#", "GPUs,", "time", "(ms)"],
    ]
    assert [line.split() for line in call("--list wid*").stdout.splitlines()][1:3] == [
        ["wider", "wider"],
        ["wide/some.csv"],
    ]


def test_json_has_everything(call, tmp_path):
    done = call("--json a.json --html a.html --plot a.svg")
    assert [line for line in done.stderr.splitlines() if line.startswith("wrote")] == [
        "wrote a.json",
        "wrote a.html",
        "wrote a.svg",
    ]
    facts = json.loads((tmp_path / "a.json").read_text())
    (table,) = facts["tables"]
    assert table["verdict"] == "missed"
    assert table["bar"] == {"mean": 0.15, "worst": 0.3, "rank": None}
    assert table["errors"]["mean"] == pytest.approx(0.15)
    assert table["n"] == 4
    assert table["refused"] == {"no data of fp4": 1}
    assert table["parts"][0]["rows"][0]["label"] == "1 [MiB] <b>"
    assert table["rows"][3] == {
        "label": "2 GiB", "group": "large", "measured": 2000, "predicted": None, "low": None, "high": None,
        "error": None, "reason": "no data of fp4", "seen": "",
    }  # fmt: skip
    assert [one["name"] for one in facts["skipped"]] == ["wider", "of-folder"]
    page = (tmp_path / "a.html").read_text()
    data = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page)[1]
    assert "<b>" not in data
    (shown,) = json.loads(data)["tables"]
    assert shown["rows"]["label"] == ["1 GiB", "1 [MiB] <b>", "2 MiB", "2 GiB"]
    assert shown["parts"][0]["verdict"] == "met"
    assert "<script src=" not in page
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("count", [1, 4, 11])
def test_pictures_of_any_count_of_tables(made_up, tmp_path, count):
    tables = validate(["made-up"]) * count
    picture(tables, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_tables_of_which_all_is_refused_are_drawn(tmp_path):
    table = Table("t", "T", "us", "", (Row("a", 1, float("nan")),), "blind", Bar(0.1))
    picture([table], tmp_path / "a.svg")
    write_html([table], tmp_path / "a.html")
    assert (tmp_path / "a.svg").exists()
    with pytest.raises(InputError, match="nothing to draw"):
        picture([], tmp_path / "b.svg")
    assert not (tmp_path / "b.svg").exists()


def test_picture_is_the_same_every_time(made_up, tmp_path):
    for name in ("a.svg", "b.svg"):
        picture(validate(["made-up"]), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_texts():
    assert bar_texts(None) == []
    assert bar_texts(Bar(0.125, 0.06, 0.9)) == ["≤ 12.5 %", "worst ≤ 6 %", "rank ≥ 0.9"]
    assert percent(0.0512, "+") == "+5.1 %"
    assert quantity(10079.4, "us") == "10,080 us"
    assert quantity(0.012344, "s") == "0.01234 s"
    assert quantity(float("nan"), "s") == "-"


def test_of_many_groups_and_reasons_the_worst_are_shown(capsys):
    rows = [Row("r", 1, 1 + i / 100, f"group {i}") for i in range(25)]
    rows += [Row("r", 1, float("nan"), "all", reason=f"reason {i}") for i in range(22)]
    for part in shown([Table("t", "T", "us", "", tuple(rows), "blind")]):
        show_table(part)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "group 24 1 0 24.0 % 24.0 % 24.0 % +24.0 % 0.0 %" in lines
    assert not any(line.startswith("group 3 ") for line in lines)
    assert "(6 more)" in lines
    assert "(2 more reasons)" in lines
    assert any(line.startswith("all 25 22 12.0 %") for line in lines)
