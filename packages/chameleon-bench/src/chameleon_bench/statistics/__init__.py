"""Numbers out of trajectories: what each pipeline needed, and how pipelines compare."""
