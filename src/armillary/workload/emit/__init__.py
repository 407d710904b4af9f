"""From layers and plans to traces."""
