"""HTML pages about runs and suites; each page is a single file."""
