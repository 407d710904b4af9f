"""The file of ``--comm-groups``, which commands that compare ranks read."""

from __future__ import annotations

from pathlib import Path


def read_group_file(path: Path | None, ranks: int) -> dict[int, tuple[int, ...]]:
    """Return the ranks of every group by its number; none without a file.

    Raises:
        InputError: the file is not such JSON, or a group has a rank that is not there.
    """
    if path is None:
        return {}
    from armillary.base.document import read_document
    from armillary.platform.collectives import read_groups

    document = read_document(path, "communicator groups", "json")
    # JSON keeps the last of two equal keys silently.
    if document.duplicates:
        raise document.error((document.duplicates[0],), "group given twice")
    return read_groups(document, (), document.data, ranks)
