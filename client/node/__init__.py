"""What a node is: its policy, its store, its users' enrolment keys, its replay guard."""
