"""Which suites run, on which files."""

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate import validate
from armillary.evidence.validate.run import plan
from armillary.evidence.validate.suites import chosen, suites


def test_names_of_suites_differ():
    names = [suite.name for suite in suites()]
    assert len(set(names)) == len(names)
    assert "astra-sim-hgx-h100" in names


def test_published_numbers_run_anywhere(made_up, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    (table,) = validate(progress=lambda *state: told.append(state))
    assert table.name == "made-up"
    assert told == [("made-up", 4, 4)]
    _, skipped = plan()
    assert [one.suite.name for one in skipped] == ["wider", "of-folder"]
    assert "no 'wide/some.csv' in ../shared/measured" in skipped[0].reason


def test_measurements_are_found_beside_the_checkout_or_where_said(made_up, tmp_path, monkeypatch):
    folder = tmp_path / "shared" / "measured"
    (folder / "wide").mkdir(parents=True)
    (folder / "wide" / "some.csv").write_text("")
    (folder / "wide" / "another.csv").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for measured in (None, folder):
        jobs, skipped = plan(measured=measured)
        assert not skipped
        assert [[path.name for path in job.files] for job in jobs] == [
            [],
            ["some.csv"],
            ["another.csv", "some.csv"],
        ]


def test_files_choose_their_suites(made_up, tmp_path):
    for name, header in (("a.csv", "# GPUs,time (ms)"), ("b.csv", "op,bytes"), ("c.csv", "# GPUs,time (ms)")):
        (tmp_path / name).write_text(f"{header}\n1,2\n")
    jobs, skipped = plan(data=[tmp_path / name for name in ("c.csv", "b.csv", "a.csv", "c.csv")])
    assert not skipped
    assert [(job.suite.name, [path.name for path in job.files]) for job in jobs] == [
        ("made-up", ["c.csv", "a.csv"]),
        ("of-folder", ["b.csv"]),
    ]
    (table,) = validate(data=[str(tmp_path / "a.csv")])
    assert [row.label for row in table.rows] == ["a.csv"]
    with pytest.raises(InputError, match="known are made-up"):
        plan(["made-up"], [tmp_path / "b.csv"])


def test_choice_by_name_and_pattern(made_up):
    assert [suite.name for suite in chosen(["wider", "*e*"], made_up)] == ["wider", "made-up", "of-folder"]
    assert chosen([], made_up) == made_up
    with pytest.raises(
        InputError, match=r"no validation 'made-pu' \(did you mean 'made-up'\?\), expected one of"
    ):
        chosen(["made-pu"], made_up)


def test_what_is_asked_for_by_name_must_be_there(made_up, tmp_path):
    with pytest.raises(InputError, match=r"wider: no 'wide/some.csv' in .*, see --measured"):
        plan(["wider"], measured=tmp_path)
    with pytest.raises(InputError, match="there is no folder 'nowhere'"):
        plan(measured=Path("nowhere"))


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(InputError, match="data: got '', expected the name of a file or folder"):
        validate(data=[""])
