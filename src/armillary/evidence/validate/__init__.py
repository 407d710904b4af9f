"""Predictions beside measurements of real machines.

A `Suite` reads rows and returns a `Table`; `suites` collects them, `sniff` finds the suite of a file by its
columns, and `accuracy` judges bars. Every table says how its constants relate to its rows: blind, held out,
fitted, or given.
"""

from armillary.evidence.validate.run import validate

__all__ = ["validate"]
