"""What runs where the data lives: local training, clipping, and what may travel."""
