"""Read and write the link mode that a card's firmware remembers: one protocol, several drivers."""
