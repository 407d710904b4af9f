"""Metadata of each rank of a collected run: ``collected_<rank>.json`` beside its traces."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.json_text import parse_json
from armillary.base.reading import read_plain

FORMAT = "armillary-collected-1"


@dataclass(frozen=True)
class ProcessGroup:
    """A process group of torch.distributed; `ranks` are global, in the order of the group."""

    name: str
    description: str
    backend: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class CollectedRank:
    """One rank of a run."""

    rank: int
    world_size: int
    host: str
    """File name of the host execution trace."""
    device: str
    """File name of the Kineto trace."""
    backend: str
    """Backend of the default process group; empty without one."""
    accelerator: str
    """Name of the GPU, empty on CPU."""
    torch: str
    """Version of PyTorch."""
    warmup: int
    """Steps before the recorded ones."""
    steps: int
    """Recorded steps."""
    groups: tuple[ProcessGroup, ...]
    """Process groups that the rank knows."""


def write_collected(folder: Path, rank: CollectedRank) -> None:
    """Write ``collected_<rank>.json``."""
    text = json.dumps({"format": FORMAT, **asdict(rank)}, indent=1)
    write_text(folder / f"collected_{rank.rank}.json", text)


def read_collected(folder: str | Path) -> list[CollectedRank]:
    """Return all ranks of a collected run, in order; an empty list where nothing was collected.

    Raises:
        InputError: a file cannot be read, a rank is missing, or two are of different runs.
    """
    files = [file for file in Path(folder).glob("collected_*.json") if re.search(r"_\d+\.json$", file.name)]
    ranks = sorted((_read(file) for file in files), key=lambda rank: rank.rank)
    # Sorted, the ranks of one complete run are 0, 1, … and all state their count.
    for position, rank in enumerate(ranks):
        if rank.world_size != len(ranks) or rank.rank != position:
            raise InputError(
                f"{folder}: has collected_*.json of {len(ranks)} ranks, one of which says that there are "
                f"{rank.world_size}; expected one of each rank of one run"
            )
    return ranks


def _read(file: Path) -> CollectedRank:
    expected = f"what armillary.collect writes ({FORMAT})"
    try:
        content: dict[str, Any] = parse_json(read_plain(file), file)
        if content.pop("format") != FORMAT:
            raise InputError(f"{file}: format differs, expected {expected}")
        groups = tuple(
            ProcessGroup(**{**group, "ranks": tuple(group["ranks"])}) for group in content.pop("groups")
        )
        # A key that is missing or unknown raises TypeError, which is reported below with the expected names.
        return CollectedRank(**content, groups=groups)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected {expected}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(CollectedRank))
        raise InputError(f"{file}: cannot be read ({error}), expected {expected} with {names}") from error
