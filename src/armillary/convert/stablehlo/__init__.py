"""StableHLO programs (MLIR text), which become modules of HLO and are lowered as those are."""
