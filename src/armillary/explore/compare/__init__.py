"""Comparison of runs: which parts of the step changed, by how much, and which keys of the studies differ.

A comparison uses the report's breakdown. Exposed communication is divided by covering: groups are laid over
the step one after the other, the longest over all sides first, and each counts with the ticks that it adds. So
the parts add up exactly, and so do their changes.
"""
