"""Searching a sweep: bounds that need no simulation, an exhaustive planner that uses them, and Optuna.

The planner simulates by best bound and stops when no other point can win. It prunes only on measures that
grow with time or are known before a run.
"""
