"""The option ``--groups`` of commands that compare ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

groups_option: Callable[[Any], Any] = click.option(
    "--groups",
    type=click.Path(path_type=Path),
    metavar="JSON",
    help="Communicator groups that the trace does not define, as ASTRA-sim lists them.",
)


def read_group_file(path: Path | None, ranks: int) -> dict[int, tuple[int, ...]]:
    """Return the ranks of every group by its number; none without a file.

    Raises:
        InputError: the file is not such JSON, or a group has a rank that is not there.
    """
    if path is None:
        return {}
    from armillary.base.document import read_document
    from armillary.platform.groups import read_groups

    document = read_document(path, "communicator groups", "json")
    if document.duplicates:
        raise document.error((document.duplicates[0],), "group given twice")
    return read_groups(document, (), document.data, ranks)
