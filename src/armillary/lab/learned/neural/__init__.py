"""A neural generator: a transformer over programs and pieces, with grammar masks and learned choices."""
