"""Students trained from a project's labels, in the background, and what they learned."""
