"""Chameleon's core: design spaces, contracts, plugins, pipelines and the tuning loop."""
