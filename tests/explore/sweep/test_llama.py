"""The study that sweeps were made for: 405B on up to 16,384 H100, more than 10,000 points."""

import random
from pathlib import Path

from armillary.explore.sweep import Evaluator, load_sweep


def test_what_is_screened_of_thousands_of_points():
    sweep = load_sweep(Path(__file__).with_name("llama-405b.yaml"))
    assert sweep.space.size == 11_520
    numbers = random.Random(1).sample(range(sweep.space.size), 400)
    points = [sweep.space.at(number) for number in numbers]
    evaluator = Evaluator(sweep)
    rows = [evaluator.screen(point) for point in points]
    assert 0.2 < sum(row is None for row in rows) / len(rows) < 0.35
    assert {row.reason.split(":")[0] for row in rows if row} == {"memory", "not tp * cp <= 8"}
