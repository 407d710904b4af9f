"""Programs with the names of other people's programs, and their installation where scripts look for them.

A program is one of our commands with some words before its arguments. Console scripts call the functions at the end;
the files that `install` writes call this module with the name.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from armillary.base.errors import InputError

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "AstraSim_Analytical_Congestion_Unaware": ("astra-sim", "--network-model=analytical"),
    "AstraSim_Analytical_Congestion_Aware": ("astra-sim", "--network-model=congestion"),
    "ns3.42-AstraSimNetwork-default": ("astra-sim", "ns3"),
    "AstraSim_HTSim": ("astra-sim", "htsim"),
    "chakra_converter": ("chakra", "converter"),
    "chakra_trace_link": ("chakra", "trace_link"),
    "chakra_visualizer": ("chakra", "visualizer"),
    "chakra_jsonizer": ("chakra", "jsonizer"),
    "chakra_generator": ("chakra", "generator"),
    "chakra_timeline_visualizer": ("chakra", "timeline_visualizer"),
    "et_converter": ("chakra", "et_converter"),
}
"""Name -> the words that stand before those of a call."""


def _module(name: str) -> str:
    """Return a module that is a program: ``python -m`` and its ``main`` run it."""
    return (
        "import sys\n\nfrom armillary.cli.programs import call\n\n\n"
        f'def main():\n    call("{name}", sys.argv[1:])\n\n\nif __name__ == "__main__":\n    main()\n'
    )


_BUILD = "build/astra_analytical/build"
ASTRA_SIM = {
    f"{_BUILD}/bin/AstraSim_Analytical_Congestion_Unaware": "AstraSim_Analytical_Congestion_Unaware",
    f"{_BUILD}/bin/AstraSim_Analytical_Congestion_Aware": "AstraSim_Analytical_Congestion_Aware",
    "extern/network_backend/ns-3/build/scratch/ns3.42-AstraSimNetwork-default": "ns3.42-AstraSimNetwork-default",
    "build/astra_htsim/build/bin/AstraSim_HTSim": "AstraSim_HTSim",
    # The paths of before, at which there are links still.
    f"{_BUILD}/AnalyticalAstra/bin/AnalyticalAstra": "AstraSim_Analytical_Congestion_Unaware",
    f"{_BUILD}/AstraCongestion/bin/AstraCongestion": "AstraSim_Analytical_Congestion_Aware",
}
"""Path below ASTRA-sim's folder -> the program that scripts expect there."""
CHAKRA = {name: name for name, words in PROGRAMS.items() if words[0] == "chakra"}
"""The same of Chakra, in a folder on the path."""
_MARK = "# A program of Armillary under the name of another: `armillary "
_PROTOLIB = """\
from armillary.trace.chakra_messages import open_messages as openFileRd
from armillary.trace.chakra_messages import read_message as decodeMessage
from armillary.trace.chakra_messages import write_message as encodeMessage
"""
_SCHEMA = "from armillary.trace.chakra_messages import et_def\n\nglobals().update(et_def())\n"
# Today's modules, and those of 2024.
_TOOLS = ("converter", "trace_link", "visualizer", "jsonizer", "generator", "timeline_visualizer")
CHAKRA_MODULES = {
    "chakra/schema/protobuf/et_def_pb2.py": _SCHEMA,
    "chakra/et_def/et_def_pb2.py": _SCHEMA,
    "chakra/src/third_party/utils/protolib.py": _PROTOLIB,
    "chakra/third_party/utils/protolib.py": _PROTOLIB,
    **{f"chakra/src/{name}/{name}.py": _module(f"chakra_{name}") for name in _TOOLS},
    "chakra/trace_link/trace_link.py": _module("chakra_trace_link"),
    "chakra/et_converter/et_converter.py": _module("et_converter"),
}
"""Path of a module of Chakra's Python package -> its text here, without the packages around it."""


def install(
    folder: Path, paths: Mapping[str, str], origin: str, modules: Mapping[str, str] | None = None
) -> list[Path]:
    """Install programs at paths below a folder, all or none of them; earlier installed ones are replaced.

    Args:
        folder: It is made where it is missing.
        paths: Path below it -> name of the program.
        origin: The command that installs them, ``astra-sim install``.
        modules: Path below it -> text of a module of Python; the packages around them are made, too.

    Returns:
        The files.

    Raises:
        InputError: something else is at one of the paths, or cannot be written.
    """
    from armillary.base.files import check_folder, replacing

    check_folder(origin, folder)
    tops = {Path(path).parts[0] for path in modules or ()}
    modules = {**_packages(modules or {}), **(modules or {})}
    # A folder of that name without our file is another's package, or a checkout of it.
    foreign = [
        f"{top}/." for top in tops if (folder / top).exists() and not _ours(folder / top / "__init__.py")
    ]
    for path in (*foreign, *paths, *modules):
        at = folder / path
        if os.path.lexists(at) and not _ours(at):
            raise InputError(
                f"{origin}: {at} is there already and is no program of Armillary, expected no such file"
            )
    for path, name in paths.items():
        command = f"exec {shlex.quote(sys.executable)} -m {__name__} {shlex.quote(name)}"
        # A shell and not "#!python": such a line may be at most 127 bytes long and have no blanks.
        text = f'#!/bin/sh\n{_MARK}{origin}`\n{command} "$@"\n'
        with replacing(folder / path) as temporary:
            temporary.write_text(text, encoding="utf-8")
            temporary.chmod(0o755)
    for path, text in modules.items():
        with replacing(folder / path) as temporary:
            temporary.write_text(f"{_MARK}{origin}`\n{text}", encoding="utf-8")
    return [folder / path for path in (*paths, *modules)]


def _packages(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the path of the file that makes a package of each folder that modules lie in."""
    parents = {str(each) for path in modules for each in Path(path).parents if each.name}
    return {f"{each}/__init__.py": "" for each in sorted(parents)}


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return _MARK.encode() in stream.read(256)
    except OSError:
        return False


def call(name: str, words: list[str]) -> NoReturn:
    """Run a program and exit with its status."""
    from armillary.cli import main

    main([*PROGRAMS[name], *words])
    raise AssertionError  # it has exited


def congestion_unaware() -> NoReturn:
    """Be ``AstraSim_Analytical_Congestion_Unaware``."""
    call("AstraSim_Analytical_Congestion_Unaware", sys.argv[1:])


def congestion_aware() -> NoReturn:
    """Be ``AstraSim_Analytical_Congestion_Aware``."""
    call("AstraSim_Analytical_Congestion_Aware", sys.argv[1:])


def ns3() -> NoReturn:
    """Be ``ns3.42-AstraSimNetwork-default``."""
    call("ns3.42-AstraSimNetwork-default", sys.argv[1:])


def htsim() -> NoReturn:
    """Be ``AstraSim_HTSim``."""
    call("AstraSim_HTSim", sys.argv[1:])


if __name__ == "__main__":
    call(sys.argv[1], sys.argv[2:])
