"""The desk: projects, label sets, answers, agreement."""
