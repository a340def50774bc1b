"""What others have measured, as tasks of a data set; only data are read, no code is run."""
