"""Statistics of trajectories: the effort of each pipeline, and comparisons of pipelines."""
