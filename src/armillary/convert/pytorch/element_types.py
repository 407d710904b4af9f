"""Bytes of one element by the name of its type: C++'s, as operators have it, or ScalarType's, as collectives do."""

from __future__ import annotations

import re
from functools import lru_cache

_BYTES = {
    "bool": 1, "byte": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1, "quint4x2": 1, "quint2x4": 1, "bits8": 1,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "float4e2m1fnx2": 1,
    "half": 2, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "bits16": 2,
    "float": 4, "float32": 4, "int32": 4, "uint32": 4, "qint32": 4, "complexhalf": 4, "complex32": 4,
    "double": 8, "float64": 8, "int64": 8, "uint64": 8, "complexfloat": 8, "complex64": 8,
    "complexdouble": 16, "complex128": 16,
}  # fmt: skip
_WORDS = frozenset(("signed", "unsigned", "char", "short", "int", "long"))
"""C++ spells one integer in several ways: long, long int, unsigned long, long unsigned int, long long."""


@lru_cache(maxsize=256)
def element_bytes(dtype: object) -> int:
    """Return the bytes of one element of a dtype as PyTorch's profilers name it; 0 if unknown."""
    text = re.sub(r"\b(c10|at|torch|std)(::|\.)", "", str(dtype).strip().lower())
    words = set(text.split())
    if words and words <= _WORDS:
        return next((size for word, size in (("char", 1), ("short", 2), ("long", 8)) if word in words), 4)
    bare = re.sub(r"[^a-z0-9]", "", text)
    return 1 if re.match(r"float8e\d", bare) else _BYTES.get(bare, 0)
