"""Timing of delivered networks beside frameworks and beside TVM without tuning."""
