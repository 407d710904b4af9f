"""Network model `congestion`: messages cross the links one by one, and a link carries one at a time."""
