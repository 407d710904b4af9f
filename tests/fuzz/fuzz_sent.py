"""What the studio makes of a file that a page has sent."""

from __future__ import annotations

import itertools
from pathlib import Path

from armillary.studio import dropped

_NUMBERS = itertools.count()


def sent(path: Path, *, chakra: bool) -> None:
    """Ask what the studio is asked of a file that a page has sent."""
    # A place of its own: what was read of one is kept.
    place = path.with_name(f"sent-{next(_NUMBERS)}")
    place.hardlink_to(path)
    dropped.run({"trace": [[path.name, str(place), chakra]]}, lambda told: None)
