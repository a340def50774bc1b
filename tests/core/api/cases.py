"""What the tests of searches share: their stages, and a function to make small."""

STAGES = dict.fromkeys(("explorer", "cost_model", "sampler", "synthesizer"), "synthetic")
"""Arguments of a tuner: the synthetic stages."""


def bowl(tile, unroll, vectorise):
    """Seconds, the fewest for tile 4, unroll 16, vectorise."""
    return 1e-3 * ((tile - 4) ** 2 + (unroll / 16 - 1) ** 2 + (not vectorise) + 1)
