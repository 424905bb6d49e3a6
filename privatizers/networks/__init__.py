"""The networks of filters, releasers, and those who read from what they release."""
