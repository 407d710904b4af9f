"""What NCCL's inspector and its example profiler recorded: collectives of each process, with their times."""
