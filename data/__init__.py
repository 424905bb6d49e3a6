"""Where data comes from: one file per kind of source, all returning one kind of data set."""
