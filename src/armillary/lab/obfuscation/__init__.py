"""Traces that behave like others and say little about them.

Each graph is read into rows that hold only what decides how it runs. What is not read is never written, so
nothing else can leak. Graphs that differ only in peers and groups are rewritten alike, and the factor applied
to a message or collective depends only on its size, so ranks agree without being compared. `coarsen` cuts the
kernels of a rank, in the order that a simulation showed, into random windows; collectives between the same two
windows become one.
"""
