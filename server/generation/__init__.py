"""What is trained from releases: the generator, its samples, fitted privatizers."""
