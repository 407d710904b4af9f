"""How much bandwidth each dimension of a network shall get under a budget."""
