"""What layers of sharded models do on one rank."""
