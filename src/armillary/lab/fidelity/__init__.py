"""How good made traces are: simulated times, two-sample tests, and whether they were only remembered.

Any maker of traces can be measured, so all generators stand in the same table.
"""
