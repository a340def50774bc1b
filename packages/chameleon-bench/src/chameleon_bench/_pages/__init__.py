"""HTML pages about runs and suites. Each page is a single file."""
