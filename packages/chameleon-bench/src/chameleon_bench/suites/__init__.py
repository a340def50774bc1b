"""What a suite is, and how its file is read."""
