"""Neural architecture search as program transformation (Turner et al., ASPLOS 2021)."""
