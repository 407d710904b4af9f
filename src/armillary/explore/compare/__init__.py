"""What sets runs apart: which parts of the step changed, by how much, and which keys of the studies differ.

A comparison uses the report's breakdown. Exposed communication is divided by covering: groups are laid over
the step one after the other, longest on all sides first, and each counts for what it adds. So parts add up
exactly, and so do their changes.
"""
