"""Parts of pages that know nothing of what they show."""
