"""What `import fedlens` offers, one module for each subject."""
