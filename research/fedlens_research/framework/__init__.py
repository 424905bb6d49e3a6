"""What every study stands on: settings, trials, a store that resumes, tables, plots, pages."""
