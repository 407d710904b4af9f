"""The form of error messages."""

from __future__ import annotations

import pickle

from armillary.base.errors import InputError


def test_a_message_is_one_line_that_can_be_printed() -> None:
    error = InputError("w.json: name is 'a\nb\x1b[2J\u2028\ud800é', expected text")
    assert str(error) == "w.json: name is 'a\\nb\\x1b[2J\\u2028\\ud800é', expected text"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_long_message_keeps_its_start_and_its_end() -> None:
    text = str(InputError(f"w.json: name is '{'x' * 100_000}', expected a number"))
    assert len(text) < 1300 and text.startswith("w.json: name is") and text.endswith("expected a number")
