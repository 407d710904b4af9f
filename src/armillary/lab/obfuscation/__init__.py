"""Traces that behave like others and say little about them.

Each graph is read into rows that hold only what decides how it runs. What is not read is never written, so
nothing else can leak. Graphs that differ in peers and groups only are rewritten alike, and the factor of what
is communicated follows from its size alone, so ranks agree without being compared. `coarsen` cuts the kernels
of a rank, in the order a simulation showed, into random windows; collectives between the same two windows
become one.
"""
