"""Consent to programs that files name: a study from somebody else must not start anything by itself.

The consent is given by ``--allow-programs``, by `armillary.base.allowed.allow` in Python, or, for single programs, by
the user's own configuration: ``programs: [/opt/models/wave]`` in ``$XDG_CONFIG_HOME/armillary/config.yaml``. A listed
program gets any arguments that a file gives it, so interpreters do not belong in the list.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from armillary.base.allowed import Allowed, allowed, factor
from armillary.base.document import is_there, read_document
from armillary.base.errors import ConsentError, InputError

OPTION = "--allow-programs"


def configuration() -> Path:
    """Return the path of the user's configuration, which need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # Relative ones are to be ignored, by the specification: they would be the folder of whoever wrote the study.
    folder = Path(home) if home and Path(home).is_absolute() else Path("~/.config").expanduser()
    return folder / "armillary" / "config.yaml"


def listed_programs() -> tuple[str, ...]:
    """Return the programs that the user's configuration allows.

    Raises:
        InputError: it cannot be read, or has something else in it.
    """
    path = configuration()
    if not is_there(path):
        return ()
    document = read_document(path, "configuration", "yaml")
    document.check_keys(("programs",))
    found = document.data.get("programs") or []
    if not isinstance(found, list):
        document.reject(("programs",), found, "a list of absolute paths of programs")
    for at, each in enumerate(found):
        if not isinstance(each, str) or not Path(each).is_absolute():
            document.reject(("programs", at), each, "the absolute path of a program")
    return tuple(found)


def consent() -> Allowed:
    """Return what is allowed here, for workers elsewhere: with the programs of the configuration."""
    now = allowed()
    listed = now.listed if now.listed is not None else listed_programs()
    return Allowed(now.programs, listed, factor())


def find_program(command: Sequence[str], folder: Path) -> Path:
    """Return the path of the program of a command that a file in `folder` names, if it may be started.

    Raises:
        ConsentError: nobody has allowed it.
        InputError: there is none of that name.
    """
    name = command[0]
    # As a shell would in that folder: a name without a slash is looked for where programs are.
    found = shutil.which(str(folder.absolute() / name) if os.sep in name else name)
    called = found or name
    now = allowed()
    if not now.programs:
        listed = listed_programs() if now.listed is None else now.listed
        # Links are followed on both sides: what runs is what counts.
        if not found or os.path.realpath(found) not in map(os.path.realpath, listed):
            raise ConsentError(
                f"names the program '{called}' ({' '.join(command):.100}), which is started only with consent: "
                f"expected {OPTION} (in Python armillary.allow(programs=True)), or its absolute path under programs in "
                f"{configuration()}"
            )
    if not found:
        raise InputError(f"program '{name}' cannot be started: No such file or directory, or not executable")
    return Path(found)
