"""Look at, debug, label and train on federated data without anyone seeing it."""
