"""Collectives that traces of their own describe, in ASTRA-sim's system files."""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.document import Document, is_there, read_document
from armillary.base.hints import show


def custom_prefix(document: Document, key: str) -> str:
    """Return the prefix of the traces that stand for a kind of collective.

    Raises:
        InputError: it is not a list of one prefix.
    """
    names = document.data[key]
    if (
        not isinstance(names, list | tuple)
        or len(names) != 1
        or not isinstance(names[0], str)
        or not names[0]
    ):
        document.reject((key,), names, "a list of exactly one prefix of execution traces")
    return _resolve_prefix(names[0], document)


def custom_by_node(document: Document) -> dict[int, str]:
    """Return the prefixes of the traces that stand for single collectives, by the number of their node.

    Raises:
        InputError: the table cannot be read, or a number or a prefix is none.
    """
    key = "per-node-custom-implementation"
    if key not in document.data:
        return {}
    name = document.data[key]
    if not isinstance(name, str | Mapping):
        document.reject((key,), name, "the path of a YAML file of node id: trace prefix")
    # That program resolves relative paths from its working directory; beside the file is what a user means
    # more often.
    if isinstance(name, str) and document.path and not is_there(name):
        beside = document.path.parent / name
        name = str(beside) if is_there(beside) else name
    # A mapping from node id to prefix may also stand in the file itself, which read_document passes through.
    table = read_document(name, key, "yaml")
    # YAML keys may be of any type.
    for node, prefix in table.data.items():
        if isinstance(node, bool) or not isinstance(node, int) or node < 0:
            raise table.error((node,), f"got node id {show(node)}, expected a whole number, 0 or more")
        if not isinstance(prefix, str) or not prefix:
            table.reject((node,), prefix, "the prefix of execution traces")
    return {node: _resolve_prefix(prefix, table) for node, prefix in table.data.items()}


def _resolve_prefix(prefix: str, document: Document) -> str:
    """Return `prefix` as written, or beside the document if its traces are only there."""
    # Rank 0 has a trace in every set, so that its file stands for all.
    if document.path and not is_there(f"{prefix}.0.et"):
        beside = document.path.parent / prefix
        if is_there(f"{beside}.0.et"):
            return str(beside)
    return prefix
