"""Quality of generated traces: simulated times, two-sample tests, and whether they were only memorised.

Any generator of traces can be measured, so that all can be compared in one table.
"""
