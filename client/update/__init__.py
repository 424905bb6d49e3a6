"""From users' records to one clipped, summed update."""
