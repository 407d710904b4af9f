"""How good made traces are: simulated times, two-sample tests, and whether they were only remembered."""
