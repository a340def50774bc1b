"""What precedes the first batch: tasks, their spaces, and what has to be known before."""
