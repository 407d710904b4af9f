"""What stands where in the columns of a graph, for kernels and for what is no kernel."""

from __future__ import annotations

RAW = 33
"""Kind of an attribute that is a whole field of a node, of a schema that is newer than this one."""
# Rows of the matrix with one column per frame.
ID, TYPE, START, DURATION, NAME_AT, CTRL_AT, DATA_AT, ATTR_AT, ROW_FIELDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
