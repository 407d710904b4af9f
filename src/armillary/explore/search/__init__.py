"""Searching a sweep: bounds that need no simulation, an exhaustive planner that uses them, and Optuna."""
