"""The sample of MNIST that ships with fedlens, and how it was drawn."""
