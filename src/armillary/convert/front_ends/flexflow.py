"""FlexFlow task graphs (.graph): measured compute tasks, and the transfers between devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.reading import decoded, read_plain
from armillary.convert.converted import Converted


def convert(inputs: Sequence[Path], *, all_reduce: bool = False) -> Converted:
    """Return one graph per device, with durations as FlexFlow measured them.

    Args:
        inputs: one file, as FlexFlow's simulator exports it.
        all_reduce: Update replicated weights with an all-reduce of the devices that hold them, instead of
            transfers to one device and back.

    Raises:
        InputError: the file cannot be read, or is not such a graph; names the line.
    """
    from armillary.convert.flexflow.split import Split
    from armillary.convert.flexflow.task_graph import read_tasks

    if len(inputs) != 1:
        raise InputError(f"{len(inputs)} FlexFlow files, expected one: it holds the tasks of all devices")
    path = inputs[0]
    try:
        text = decoded(read_plain(path), path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a FlexFlow task graph") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: byte {error.start} is not UTF-8, expected a FlexFlow task graph"
        ) from error
    tasks = read_tasks(text, str(path))
    split = Split(tasks, all_reduce)
    trace = split.trace(str(path))
    warnings = []
    # The devices are distinct and ascending: only a gap makes the last one larger than their count allows.
    if split.devices[-1] != len(split.devices) - 1:
        shown = ", ".join(map(str, split.devices[:8])) + (", …" if len(split.devices) > 8 else "")
        warnings.append(f"{path}: devices {shown} become ranks 0 to {len(split.devices) - 1}")
    if split.bare:
        warnings.append(
            f"{path}: {split.bare} tasks wait for another device without a transfer: messages of 1 byte"
        )
    if split.empty:
        warnings.append(f"{path}: {split.empty} transfers of no bytes become 1 byte")
    transfers = sum(task.source is not None for task in tasks)
    facts = {"tasks": len(tasks), "transfers": transfers, "all_reduced_updates": len(split.updates)}
    return Converted(trace, split.groups.ranks, tuple(warnings), facts)
