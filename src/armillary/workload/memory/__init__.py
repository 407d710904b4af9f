"""Memory needs of a plan on an NPU, and changes for a plan that does not fit."""
