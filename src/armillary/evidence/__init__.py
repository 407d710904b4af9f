"""What says whether to believe the simulator: validation, calibration, published results, replay."""
