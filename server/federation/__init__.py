"""Who takes part: enrolment, membership, the roster, exchanges with nodes, populations."""
