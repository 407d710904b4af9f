"""How little a trace can say about what it was made of, and how well it still stands for it."""
