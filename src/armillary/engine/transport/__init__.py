"""Networks with contention as movers of messages: FIFO links, flows, packets."""
