"""Attributes of StableHLO as HLO text writes them, pretty and generic forms alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import iter_unpack

from armillary.convert.hlo.shapes import Shape
from armillary.convert.stablehlo.operations import Operation

_LABELS = re.compile(r"\[([\w, ]*)\]\s*x\s*\[([\w, ]*)\]\s*->\s*\[([\w, ]*)\]")
_NUMBER = re.compile(r"-?\d{1,18}")
_DENSE = r"{}\s*=\s*dense<(.*?)>\s*:\s*tensor<((?:\d{{1,18}}x)*)\w+>"
_TARGET = re.compile(r"custom_call\s*@([\w.$\-]+)|call_target_name\s*=\s*\"([^\"]*)\"|^\s*@([\w.$\-]+)")


def attributes(opcode: str, operation: Operation, given: Sequence[Shape]) -> dict[str, str]:
    """Return what HLO's costs and groups need of an operation.

    Args:
        opcode: of HLO.
        operation: the operation.
        given: shapes of its operands.
    """
    text, found = operation.text, dict[str, str]()
    if opcode == "dot":
        listed = re.search(
            r"(?:(?<!_)contracting_dims\s*=|lhs_contracting_dimensions\s*=)\s*\[([\d, ]*)\]", text
        )
        # `dot` has none: the last of the left operand.
        last = len(given[0].dims) - 1 if given else 0
        found["lhs_contracting_dims"] = "{" + (listed[1] if listed else str(max(last, 0))) + "}"
    elif opcode == "convolution":
        found |= _convolution(text, given)
    elif opcode in ("reduce-window", "select-and-scatter"):
        sizes = _array(text, "window_dimensions")
        found["window"] = "{size=" + "x".join(map(str, sizes)) + "}" if sizes else "{}"
    elif opcode == "sort":
        along = re.search(r"dimension\s*=\s*(\d{1,9})", text)
        found["dimensions"] = (
            "{" + (along[1] if along else str(max(len(given[0].dims) - 1, 0) if given else 0)) + "}"
        )
    elif opcode == "fft":
        found["fft_length"] = "{" + ",".join(map(str, _array(text, "(?:fft_)?length"))) + "}"
    elif opcode == "compare":
        way = re.search(r"\b(EQ|NE|LT|LE|GT|GE)\b", text)
        found["direction"] = way[1] if way else ""
    elif opcode == "custom-call":
        name = _TARGET.search(text)
        found["custom_call_target"] = (
            '"' + (next((each for each in name.groups() if each), "") if name else "") + '"'
        )
    return found | _communication(text)


def _communication(text: str) -> dict[str, str]:
    found = {}
    for name in ("replica_groups", "source_target_pairs"):
        rows = _rows(text, name)
        if rows is not None:
            # Rows of different lengths are filled up with -1.
            kept = [[str(each) for each in row if each >= 0] for row in rows]
            found[name] = "{" + ",".join("{" + ",".join(row) + "}" for row in kept if row) + "}"
        elif match := re.search(rf"\b{name}\s*=\s*(\S[^\n]{{0,60}})", text):
            found[name] = match[1]
    if (handle := re.search(r"channel_handle<\s*handle\s*=\s*(\d{1,18})", text)) and int(handle[1]) > 0:
        found["channel_id"] = handle[1]
    if re.search(r"\buse_global_device_ids\b(?!\s*=\s*false)", text):
        found["use_global_device_ids"] = "true"
    return found


def pairs_of_message(found: dict[str, str]) -> dict[str, str]:
    """Return the attributes of a send or receive, whose pairs HLO writes among those of the front end."""
    pairs = found.get("source_target_pairs")
    return found | (
        {"frontend_attributes": f'{{_xla_send_recv_source_target_pairs="{pairs}"}}'} if pairs else {}
    )


def _rows(text: str, name: str) -> list[list[int]] | None:
    match = re.search(_DENSE.format(rf"\b{name}"), text)
    if match is None:
        return None
    body, dims = match[1].strip(), [int(each) for each in match[2].split("x")[:-1]]
    if hexadecimal := re.fullmatch(r"\"0x((?:[0-9A-Fa-f]{16})*)\"", body):
        numbers = [value for (value,) in iter_unpack("<q", bytes.fromhex(hexadecimal[1]))]
    else:
        numbers = [int(each) for each in _NUMBER.findall(body)]
    count, width = (dims[0], dims[1]) if len(dims) == 2 else (1, len(numbers))
    # One value stands for all of them.
    if len(numbers) == 1 and count == 1:
        numbers *= min(width, 1 << 20)
    if not width or len(numbers) != count * width:
        return [] if not numbers else None
    return [numbers[at : at + width] for at in range(0, len(numbers), width)]


def _array(text: str, name: str) -> list[int]:
    """Return the numbers of ``name = array<i64: 1, 2>``, ``name = [1, 2]`` or ``name = dense<[1, 2]> : …``."""
    match = re.search(rf"\b{name}\s*=\s*(?:array<i64:?|\[|dense<\[?)([-\d,\s]*)", text)
    return [int(each) for each in _NUMBER.findall(match[1])] if match else []


def _convolution(text: str, given: Sequence[Shape]) -> dict[str, str]:
    labels = _LABELS.search(text)
    if labels is None or len(given) < 2:
        return {}
    names = [part.replace(",", "").replace(" ", "") for part in labels.groups()]
    kernel = dict(zip(names[1], given[1].dims, strict=False))
    sizes = [kernel[each] for each in sorted(name for name in kernel if name.isdigit())]
    window = {"size": "x".join(map(str, sizes))}
    for ours, theirs in (
        ("stride", r"(?:window_strides|stride)"), ("lhs_dilate", r"(?:lhs_dilation|lhs_dilate)"),
        ("rhs_dilate", r"(?:rhs_dilation|rhs_dilate)"),
    ):  # fmt: skip
        if values := _array(text, theirs):
            window[ours] = "x".join(map(str, values))
    pad = re.search(r"\bpad(?:ding)?\s*=\s*(?:dense<)?((?:\[[^\]]*\]|[\[\],\s\d-])*)", text)
    values = [int(each) for each in _NUMBER.findall(pad[1])] if pad else []
    if len(values) == 1:
        values *= 2 * len(sizes)
    if len(values) == 2 * len(sizes) and values:
        window["pad"] = "x".join(f"{values[at]}_{values[at + 1]}" for at in range(0, len(values), 2))
    return {
        "dim_labels": f"{names[0]}_{names[1]}->{names[2]}",
        "window": "{" + " ".join(f"{key}={value}" for key, value in window.items()) + "}" if sizes else "{}",
    }
