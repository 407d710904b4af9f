"""What ASTRA-sim prints and writes of a run: its lines on standard output, its folder of logs, its trace of memory.

Scripts that other people wrote for that program look for these lines, so they have its grammar, its order and its
definitions, also where these are odd. `result_log` makes a `ResultLog` of a timeline; `log_files` has the folder and
the configuration of loggers.
"""

from __future__ import annotations

from armillary.report.astra_log.log_files import Logging, read_logging, write_log_files
from armillary.report.astra_log.result_log import LogText, ResultLog, result_log

__all__ = ["LogText", "Logging", "ResultLog", "read_logging", "result_log", "write_log_files"]
