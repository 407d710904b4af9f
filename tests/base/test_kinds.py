"""Arguments of other kinds than their annotations say are refused by the name of the command's option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.base.kinds import check_kinds

ANNOTATIONS = {"count_ns": "int | None", "share": "float", "on": "bool", "file": "str | Path", "other": "Any"}


def test_what_fits_is_taken() -> None:
    for count, share in ((3, 0.5), (None, 1), (np.int64(3), np.float64(2))):
        check_kinds(
            {"count_ns": count, "share": share, "on": True, "file": Path(), "other": object()}, ANNOTATIONS
        )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("count_ns", "3", "count-ns: got '3', expected a whole number"),
        ("count_ns", 3.0, "count-ns: got 3.0, expected a whole number"),
        ("count_ns", True, "count-ns: got True, expected a whole number"),
        ("share", None, "share: got nothing, expected a number"),
        ("share", float("nan"), "share: got nan, expected a number"),
        ("on", 1, "on: got 1, expected true or false"),
        ("file", 3, "file: got 3, expected text or a path"),
    ],
)
def test_what_does_not_fit_is_named(name: str, value: object, words: str) -> None:
    with pytest.raises(InputError) as error:
        check_kinds({name: value}, ANNOTATIONS)
    assert str(error.value) == words


LOAD = "poisson:rate=4,requests=3,input=8,output=2"


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (armillary.serve, {"overhead_ns": float("nan")}, "overhead-ns: got nan, expected a whole number"),
        (armillary.serve, {"cached": "no"}, "cached: got 'no', expected true or false"),
        (armillary.serve, {"seed": -1}, "seed: got -1, expected a whole number from 0 to 4,294,967,295"),
        (armillary.serve, {"load": 3}, "load: got 3, expected a text like poisson:"),
        (armillary.serve, {"overhead_ns": -1}, "overhead -1 ns: expected 0 to"),
        (armillary.plan_serving, {"slo": "ttft=1s", "share": "90 %"}, "share: got '90 %', expected a number"),
        (armillary.train, {"model": 3}, "model: got 3, expected the name of a model, its file, or a model"),
        (armillary.train, {"software": 3}, "software: got 3, expected text"),
        (armillary.plan, {"top": 0}, "top: got 0, expected 1 or more"),
        (armillary.plan, {"among": [3]}, "plan: got 3, expected a mapping of keys to values"),
        (armillary.plan, {"among": 3}, "among: got 3, expected several mappings of keys to values"),
    ],
)
def test_commands_refuse_other_kinds(command: Any, arguments: dict[str, Any], words: str) -> None:
    served = command in (armillary.serve, armillary.plan_serving)
    usual = {"model": "llama-3.1-8b", "machine": "1xh100"} | ({"load": LOAD} if served else {})
    with pytest.raises(InputError) as error:
        command(**(usual | arguments))
    assert str(error.value).startswith(words)
