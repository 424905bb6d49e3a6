"""People's own records with a utility and a sensitive attribute: folders, arrays and series."""
