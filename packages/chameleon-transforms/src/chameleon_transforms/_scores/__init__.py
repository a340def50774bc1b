"""Scores networks with their initial weights, without training."""
