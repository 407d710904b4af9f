"""Made from simulations: learned traces, extrapolation, obfuscation, and how much of these to believe."""
