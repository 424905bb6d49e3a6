"""Students: what samples are worth for training."""
