"""Students: what samples are worth to somebody who trains on them."""
