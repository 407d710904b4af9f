"""The executors that are built in."""
