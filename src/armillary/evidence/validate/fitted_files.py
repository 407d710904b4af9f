"""Files that constants of this package were fitted to, known by what is in them."""

from __future__ import annotations

import hashlib

_DIGESTS = {
    "04e356f529e9b12e": "gemm/a100.csv.gz",
    "21940ddba8ae8082": "gemm/h100.csv.gz",
    "1f0b61aa971ce00a": "gemm/b200.csv.gz",
    "4de1a99173bd4887": "aiconfigurator/h100_context_attention.csv.gz",
}


def is_fitted(text: str) -> bool:
    """Tell whether constants were fitted to rows of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] in _DIGESTS
