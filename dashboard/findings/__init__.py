"""What engineers found: its evidence, frozen as it was, its page, and a report to share."""
