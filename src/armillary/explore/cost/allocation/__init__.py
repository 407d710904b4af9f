"""Allocation of a budget of bandwidth to the dimensions of a network."""
