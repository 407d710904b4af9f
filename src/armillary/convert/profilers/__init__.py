"""Profilers of GPUs: Nsight Systems and rocprofv3, whose events are read as those of Kineto are."""
