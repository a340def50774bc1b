"""The frontends of networks: what a pipeline names, for one input shape or for several."""
