"""A convolution as loop nests, which transforms change."""
