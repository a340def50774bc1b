"""Samplers, which keep few of many candidates, and synthesizers, which refine a batch."""
