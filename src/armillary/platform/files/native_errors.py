"""What pydantic finds wrong with a study file, in the words of this project."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import KeyPath, key_text, show, whole_number
from armillary.platform.fields import TAGS


def first_error(document: Document, error: ValidationError, at: KeyPath = ()) -> InputError:
    """Return the first of pydantic's errors in the words of this project; `at` is where the part stands."""
    # One error at a time: later ones are often consequences of the first.
    path, problem = first_problem(error)
    path = (*at, *path)
    if not problem:
        inside = f" in {key_text(path[:-1])}" if path[:-1] else ""
        return InputError(f"{document.where(path[:-1])}: missing key '{path[-1]}'{inside}")
    return document.error(path, problem)


def first_problem(error: ValidationError) -> tuple[KeyPath, str]:
    """Return where the first of pydantic's errors is, and what: empty for a key that is missing."""
    first: Any = error.errors(include_url=False)[0]
    # Tags of unions are no keys of the file.
    path: KeyPath = tuple(part for part in first["loc"] if part not in TAGS)
    context = first.get("ctx", {})
    kind = first["type"]
    if kind in ("missing", "missing_key"):
        # Our own errors of this type carry the key; pydantic's own have it as the last part of the path.
        return (path if kind == "missing" else (*path, context["key"])), ""
    if kind == "unknown_key":
        return (*path, context["key"]), first["msg"]
    # Raised by validators of this package, whose text is final.
    if kind == "value_error":
        return path, str(context["error"])
    got = show(first["input"])
    if kind == "literal_error":
        # pydantic writes "'a', 'b' or 'c'".
        choices = [word.strip("' ") for word in context["expected"].replace(" or ", ",").split(",")]
        return path, f"got {got}, expected {one_of(choices)}{nearest(str(first['input']), choices)}"
    expected = {
        "int_type": "a whole number",
        "string_type": "text",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping of keys to values",
        "model_type": "a mapping of keys to values",
        "greater_than_equal": f"{context.get('ge')} or more",
        "less_than_equal": f"{context.get('le')} or less",
        "greater_than": f"more than {context.get('gt')}",
        "float_type": "a number",
        "too_short": f"at least {context.get('min_length')} entries"
        if context.get("min_length", 1) > 1
        else "at least one entry",
        "too_long": f"at most {context.get('max_length')} entries",
        "string_too_short": "some text",
    }
    # 1e3 is a float in YAML, and 1_000 text: say how to write it.
    hint = whole_number(str(first["input"])) if kind == "int_type" else ""
    return path, f"got {got}, expected {expected.get(kind, first['msg'])}{hint}"
