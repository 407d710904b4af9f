"""One rank of ``armillary capture``: run a script unchanged, until its step is recorded.

Called as ``python -m armillary.capture.script OPTIONS SCRIPT ARGUMENTS…``; OPTIONS are JSON.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from armillary.base.errors import ArmillaryError
from armillary.base.files import write_text
from armillary.base.text import printable
from armillary.capture.cluster import environment
from armillary.capture.failures import reason
from armillary.capture.inputs import Inputs, NoInput
from armillary.capture.session import Session

REFUSED = "refused_"
"""Prefix, before the rank, of the file in which a rank leaves the reason why it was not captured."""


class Recorded(BaseException):
    """The step is recorded: what the script would do further is not needed. No `Exception`, which scripts catch."""


def main() -> None:
    """Run the script that the command line names."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    script, sys.argv = sys.argv[2], sys.argv[2:]
    folder, rank = Path(options["folder"]), options["rank"]
    status = 0
    sys.stdin = NoInput()

    folders = [Path.cwd()] if options["module"] else [Path.cwd(), Path(script).parent]
    inputs = Inputs(environment(rank, options["ranks"]), folders)

    process = os.getpid()

    def found() -> None:
        if os.getpid() != process:
            # Its parent goes on, and would record what is left.
            text = f"{script}: a process that it starts trains; expected that it trains itself, as under torchrun"
            _refuse(Path(options["mail"]), rank, text)
            raise ArmillaryError(text)
        session.log.sources, names, values = inputs.found()
        session.log.environment = names, values

    def ended() -> None:
        raise Recorded

    try:
        session = Session(
            folder, rank, options["ranks"], options["device"], step=options["step"], script=script,
            mail=Path(options["mail"]), alike=options["alike"], ended=ended, before=found,
        )  # fmt: skip
        with session:
            try:
                _run(script, module=options["module"])
            except SystemExit as error:
                # sys.exit(0) is a regular end.
                if error.code:
                    raise
    except Recorded:
        pass
    except ArmillaryError as error:
        status = error.exit_code
        _refuse(Path(options["mail"]), rank, str(error))
    except BaseException as error:
        # The words of an error may be those of a stranger's file.
        sys.stderr.write(printable(traceback.format_exc()))
        status = 1
        _refuse(Path(options["mail"]), rank, reason(error, script, session.log.notes))
    # Without the end of the interpreter: threads and objects of the script expect the device that is not there.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(script: str, *, module: bool) -> None:
    if module:
        # The current folder comes first, as with `python -m`.
        sys.path[0] = str(Path.cwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        # `-m` has put the current folder in first place, where the script expects its own.
        sys.path[0] = str(Path(script).resolve().parent)
        runpy.run_path(script, run_name="__main__")


def _refuse(folder: Path, rank: int, text: str) -> None:
    write_text(folder / f"{REFUSED}{rank}", text)


if __name__ == "__main__":
    main()
