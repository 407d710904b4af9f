"""Whole runs: their time, NPU years and cost, and the share that failures take.

Failures are renewals, which gives goodput in closed form, also with asynchronous checkpoints; a limited
number of spares is Erlang's loss formula. A seeded event-by-event reference uses neither.
"""
