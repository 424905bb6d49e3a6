"""The networks of filters, releasers, and the networks that read from what they release."""
