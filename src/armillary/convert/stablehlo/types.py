"""Types of MLIR as shapes: ``tensor<4x8xf32>``, tuples, tokens; and the operands and result types of an operation."""

from __future__ import annotations

import re

from armillary.base.errors import InputError
from armillary.convert.hlo.shapes import Shape
from armillary.convert.stablehlo.operations import Operation

_TENSOR = re.compile(r"tensor<((?:(?:\?|\d{1,18})x)*)([^,<>]+(?:<[^<>]*>)?)(?:,.*)?>", re.S)
_BITS = re.compile(r"(?:[su]?i|f|bf|tf)(\d{1,3})(?:E\d\w*)?")
_NAMED = {"i1": 8, "index": 64, "tf32": 32, "none": 0}
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"")
_OPERAND = re.compile(r"%([\w.$\-]+(?:#\d{1,6})?)(?![\w.$#\-]|\s*[:=])")
_LOCATION = re.compile(r"\sloc\(")
_OPEN, _CLOSE = "(<[{", ")>]}"


def operands(operation: Operation) -> list[str]:
    """Return the names of the values that an operation takes, in order."""
    text = _STRING.sub('""', _before_types(operation.text)[0])
    return _OPERAND.findall(text)


def result_shapes(operation: Operation) -> list[Shape]:
    """Return the shapes of what an operation gives.

    Raises:
        InputError: its types are not those of StableHLO.
    """
    types = _before_types(operation.text)[1]
    given, arrow, result = _arrow(types)
    listed = split(_bare(result if arrow else given))
    count = len(operation.results)
    # Without an arrow all types are alike (``: T``), are the results' (a loop), or end with the result's (a select).
    if not arrow and len(listed) != count:
        listed = listed[-1:] * count
    if len(listed) != count:
        raise InputError(f"'{operation.name}' has {count} results and {len(listed)} types, expected as many")
    return [shape(each) for each in listed]


def shape(text: str) -> Shape:
    """Return the shape of a type.

    Raises:
        InputError: it is no tensor of known size, and no token or tuple.
    """
    text = text.strip()
    if match := _TENSOR.fullmatch(text):
        dims = match[1].split("x")[:-1]
        if "?" in dims:
            raise InputError(
                f"'{text[:60]}' has a dimension of unknown size, expected a program of known shapes"
            )
        return Shape(_bits(match[2].strip()), tuple(map(int, dims)))
    if text.startswith("tuple<") and text.endswith(">"):
        return Shape(parts=tuple(shape(each) for each in split(text[6:-1])))
    if text.startswith("!"):
        return Shape()
    raise InputError(f"the type '{text[:60]}' is unknown, expected one such as tensor<8x64xf32>")


def _bits(name: str) -> int:
    if name.startswith("complex<") and name.endswith(">"):
        return 2 * _bits(name[8:-1])
    if name.startswith("!quant.uniform<"):
        name = name[15:].partition(":")[0]
    found = _NAMED.get(name)
    if found is None and (match := _BITS.fullmatch(name)):
        # f8E4M3FN and bf16 say their bits; those below a byte are packed.
        found = int(match[1])
    if found is None or found > 128:
        raise InputError(f"element type '{name[:40]}' is unknown, expected one such as f32 or i8")
    return found


def split(text: str) -> list[str]:
    """Return what commas outside of brackets separate."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        # The arrow of a function's type closes nothing.
        elif letter in _CLOSE and not (letter == ">" and at and text[at - 1] == "-"):
            depth -= 1
        elif letter == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*found, last] if last else found


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _without_location(text: str) -> str:
    """Return a text without the location at its end."""
    # Not by one pattern of all of it: that takes the square of the blanks, or of the locations, that a line has.
    ended = text.rstrip()
    found = _LOCATION.search(ended, max(ended.rfind("\n"), 0)) if ended.endswith(")") else None
    return ended[: found.start()].rstrip() if found else text


def _before_types(text: str) -> tuple[str, str]:
    """Return a text without its types, and these: what stands behind the last colon outside of brackets."""
    text = _without_location(text)
    # What takes part of a loop or a reduction behind its types.
    text = re.split(r"\n\s*(?:cond\b|reducer\b)", text, maxsplit=1)[0]
    depth = 0
    place = -1
    quoted = _STRING.sub(lambda match: '"' * len(match[0]), text)
    for at, letter in enumerate(quoted):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and not (letter == ">" and at and quoted[at - 1] == "-"):
            depth -= 1
        elif letter == ":" and not depth and quoted[at - 1 : at].isspace():
            place = at
    return (text[:place], text[place + 1 :]) if place >= 0 else (text, "")


def _arrow(types: str) -> tuple[str, bool, str]:
    depth = 0
    for at, letter in enumerate(types):
        if letter in _OPEN:
            depth += 1
        elif letter == ">" and types[at - 1 : at] == "-":
            if not depth:
                return types[: at - 1], True, types[at + 1 :]
        elif letter in _CLOSE:
            depth -= 1
    return types, False, ""
