"""Frames of length-delimited Chakra ET, counted before `armillary.trace.decode_kernel` decodes them."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit, use

wire = use("armillary.trace.wire_kernel")
varint, LENGTH = wire.varint, wire.LENGTH
decode = use("armillary.trace.decode_kernel")
N_FILES, FILES = decode.N_FILES, decode.FILES
PARTS = 8
"""Parts of each file that `frames` picks."""


@njit
def frames(buf: Any, share: int, m: Any, parts: Any) -> Any:
    """Return the number of frames of all files, or an error, and pick parts of each file.

    The row of a file in `parts` gets the end of its first frame, and first byte and end of each of `PARTS` parts of
    whole frames, spread evenly, of about 1 / (`share` * `PARTS`) of the file; 0 where there is none.
    """
    rows = 0
    for f in range(m[N_FILES]):
        pos, end = m[FILES + f], m[FILES + f + 1]
        begin, size, row = pos, end - pos, f * (2 * PARTS + 1)
        picked, inside = 0, False
        first = True
        while pos < end:
            length, pos = varint(buf, pos, end)
            if pos < 0 or length < 0 or length > end - pos:
                return LENGTH
            pos += length
            rows += 1
            if first:
                parts[row] = pos
                first = False
            elif inside and pos - parts[row + 2 * picked + 1] >= size // (share * PARTS):
                parts[row + 2 * picked + 2] = pos
                picked += 1
                inside = False
            if not inside and picked < PARTS and pos < end and pos - begin >= size // PARTS * picked:
                parts[row + 2 * picked + 1] = pos
                inside = True
        if inside:
            parts[row + 2 * picked + 2] = end
    return rows
