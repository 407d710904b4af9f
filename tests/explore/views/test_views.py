"""The table, the pictures and the page."""

import base64
import json
import re

import numpy as np
import pytest
from rich.console import Console

from armillary.base.errors import InputError
from armillary.explore.views import picture, ranked, write_html
from armillary.explore.views.columns import columns_of


def printed(group, width=100):
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(group)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_table_has_ranks_values_units_and_reasons(synthetic):
    lines = printed(ranked(synthetic.rows(), synthetic.sweep(), top=3))
    assert lines[0] == "Best 3 of 4,549 points: least step time"
    assert lines[1].split()[:4] == ["#", "tp", "pp", "microbatch"]
    best = columns_of(synthetic.rows(), synthetic.sweep())
    values = [best.value(best.best, axis) for axis in best.varied]
    assert lines[3].split()[1:9] == " ".join(values).split()[:8]
    assert "5.966 s" in lines[3]
    assert "█" in lines[3]
    assert "11,520 points: 4,549 ok, 6,952 rejected, 15 failed, 4 over the time limit" in lines
    assert any(
        line.split() == ["1,368", "rejected", "memory:", "…", "needed,", "an", "NPU", "has", "80", "GiB"]
        for line in lines
    )


def test_two_objectives_show_the_front_and_what_all_share_is_said_once(synthetic):
    lines = printed(ranked(synthetic.rows(), synthetic.sweep(2), top=5))
    assert re.match(
        r"Best 5 of 4,549 points: 3 on the Pareto front of least step time, most headroom", lines[0]
    )
    assert [line.split()[1] for line in lines[3:8]] == ["1", "1", "1", "2", "2"]
    assert lines[8].startswith("All of these: ")
    assert max(map(len, lines)) <= 100


def test_table_without_an_ok_point_says_why(synthetic):
    rows = [row for row in synthetic.rows(500) if row.status == "rejected"]
    lines = printed(ranked(rows, synthetic.sweep()))
    assert lines[0] == f"{len(rows)} points: 0 ok, {len(rows)} rejected"
    assert sum(int(line.split()[0].replace(",", "")) for line in lines[1:5]) == len(rows)


@pytest.mark.parametrize("chart", ["all", "heat", "front", "parallel", "tornado", "axes"])
def test_charts_are_drawn(synthetic, tmp_path, chart):
    picture(synthetic.rows(300), synthetic.sweep(2), tmp_path / "a.png", chart)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_picture_is_the_same_every_time_and_names_what_it_shows(synthetic, tmp_path):
    for name in ("a.svg", "b.svg"):
        picture(synthetic.rows(300), synthetic.sweep(2), tmp_path / name, "heat", ("pp", "tp"))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("chart", "objectives", "over", "message"),
    [
        ("front", 1, None, "expected two objectives"),
        ("pie", 1, None, "chart 'pie': expected one of all"),
        ("heat", 1, ("tp", "tp"), "expected two different axes"),
        ("heat", 1, ("tp", "qq"), "axis 'qq'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(synthetic, tmp_path, chart, objectives, over, message):
    with pytest.raises(InputError, match=message):
        picture(synthetic.rows(300), synthetic.sweep(objectives), tmp_path / "a.png", chart, over)
    assert not list(tmp_path.iterdir())


def test_nothing_ok_is_refused(synthetic, tmp_path):
    rows = [row for row in synthetic.rows(50) if row.status != "ok"]
    with pytest.raises(InputError, match="nothing to draw, expected a point that is ok"):
        picture(rows, synthetic.sweep(), tmp_path / "a.png")


def page_data(path):
    text = path.read_text()
    return text, json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.S)[1])


def test_page_holds_every_point_in_less_than_3_mb_and_asks_no_network(synthetic, tmp_path):
    rows = synthetic.rows()
    write_html(rows, synthetic.sweep(2), tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_size < 3e6
    text, data = page_data(tmp_path / "a.html")
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    columns = columns_of(rows, synthetic.sweep(2))
    assert data["count"] == len(rows)
    step = next(each for each in data["measures"] if each["name"] == "step_time")
    values = np.frombuffer(base64.b64decode(step["values"]), "<f4")
    assert np.array_equal(values, columns.measures["step_time"].astype("<f4"), equal_nan=True)
    codes = np.frombuffer(base64.b64decode(data["axes"][0]["codes"]), "<i2")
    assert np.array_equal(codes, columns.codes[:, 0])
    why = np.frombuffer(base64.b64decode(data["why"]), "<i2")
    assert np.array_equal(why < 0, columns.ok)
    assert np.bincount(why[why >= 0]).tolist() == [reason["count"] for reason in data["reasons"]]


def test_page_takes_texts_literally(synthetic, tmp_path):
    rows = synthetic.rows(20)
    sweep = synthetic.sweep()
    sweep.path = "</script><b>.yaml"
    write_html(rows, sweep, tmp_path / "a.html")
    text, data = page_data(tmp_path / "a.html")
    assert "<b>.yaml" not in text
    assert data["title"].endswith("<b>.yaml")


def test_page_of_another_suffix_is_refused(synthetic, tmp_path):
    with pytest.raises(InputError, match=r"suffix '\.txt', expected '\.html'"):
        write_html([], synthetic.sweep(), tmp_path / "a.txt")
