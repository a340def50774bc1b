"""Prior-guided task sampling (One-Shot Tuner, Ryu et al., CC 2022, section 4.2)."""
