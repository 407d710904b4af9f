"""What a plan holds in the memory of an NPU, and what to change where it does not fit."""
