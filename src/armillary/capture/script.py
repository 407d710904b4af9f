"""Ranks of ``armillary capture``: run a script unchanged, until its step is recorded.

Called as ``python -m armillary.capture.script OPTIONS SCRIPT ARGUMENTS…``; OPTIONS are JSON. See
`armillary.capture.forks` for how ranks are asked for.
"""

from __future__ import annotations

import gc
import json
import os
import random
import runpy
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.errors import ArmillaryError
from armillary.base.files import write_text
from armillary.base.text import printable
from armillary.capture.cluster import environment
from armillary.capture.failures import reason
from armillary.capture.forks import serve
from armillary.capture.inputs import Inputs, NoInput
from armillary.capture.library import library
from armillary.capture.microbatches import NotAlike
from armillary.capture.session import Session
from armillary.convert.torch_import import import_torch, torch_part

REFUSED = "refused_"
"""Prefix, before the rank, of the file in which a rank leaves the reason why it was not captured."""
NOT_ALIKE = 75
"""Exit code of a rank that has to run more microbatches."""
PARTS = (
    "_dynamo", "_inductor.utils", "distributed.fsdp", "distributed.tensor.parallel", "distributed.optim",
    "distributed.pipelining", "testing._internal.distributed.fake_pg",
)  # fmt: skip
"""What a capture replaces something in, or a program of several ranks is likely to import."""


class Recorded(BaseException):
    """The step is recorded: what the script would do further is not needed. No `Exception`, which scripts catch."""


def main() -> None:
    """Run the script that the command line names, as each rank that is asked for."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    script, sys.argv = sys.argv[2], sys.argv[2:]
    folders = [Path.cwd()] if options["module"] else [Path.cwd(), Path(script).parent]
    # Before PyTorch, which reads variables of the environment when it is imported.
    inputs = Inputs(environment(0, options["ranks"]), folders)

    def prepare() -> None:
        # Compiled here, once, and not by every rank.
        library(import_torch("armillary capture"))
        for name in PARTS:
            with suppress(ImportError):  # of another version
                torch_part(name)
        gc.freeze()

    serve(prepare, lambda asked: _rank({**options, **asked}, script, inputs))


def _rank(options: dict[str, Any], script: str, inputs: Inputs) -> None:
    """Run the script as one rank; it does not return."""
    folder, mail, rank = Path(options["folder"]), Path(options["mail"]), options["rank"]
    status = 0
    sys.stdin = NoInput()
    process = os.getpid()
    # Not the numbers of the other ranks.
    random.seed()
    np.random.seed()
    os.environ.update(environment(rank, options["ranks"]))

    def found() -> None:
        if os.getpid() != process:
            # Its parent goes on, and would record what is left.
            text = f"{script}: a process that it starts trains; expected that it trains itself, as under torchrun"
            _refuse(mail, rank, text)
            raise ArmillaryError(text)
        session.log.sources, names, values = inputs.found()
        session.log.environment = names, values

    def ended() -> None:
        raise Recorded

    try:
        session = Session(
            folder, rank, options["ranks"], options["device"], step=options["step"], script=script,
            mail=mail, alike=options["alike"], ended=ended, before=found,
            every_microbatch=options["every_microbatch"], early=options["early"], follows=options["follows"],
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
    except NotAlike:
        status = NOT_ALIKE
    except ArmillaryError as error:
        status = error.exit_code
        _refuse(mail, rank, str(error))
    except BaseException as error:
        # The words of an error may be those of a stranger's file.
        sys.stderr.write(printable(traceback.format_exc()))
        status = 1
        _refuse(mail, rank, reason(error, script, session.log.notes))
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
