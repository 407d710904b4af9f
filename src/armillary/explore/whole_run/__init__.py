"""Whole runs: how long, how many NPU years, at what cost, and what failures take of them.

Failures are renewals, which gives goodput in closed form, also with asynchronous checkpoints; a limited
number of spares is Erlang's loss formula. A seeded event-by-event reference uses neither.
"""
