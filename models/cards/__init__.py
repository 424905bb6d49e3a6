"""A data card: histograms of what people's pictures are like, as one bounded vector a user."""
