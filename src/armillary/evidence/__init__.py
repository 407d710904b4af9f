"""Evidence for the simulator: validation, calibration, published results, replay."""
