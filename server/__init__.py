"""The aggregator: rounds, sampling, noise, generator training, release and the store."""
