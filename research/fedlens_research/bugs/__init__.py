"""Which faults a diagnosis of released sums finds, in how few users, at which ε: measured."""
