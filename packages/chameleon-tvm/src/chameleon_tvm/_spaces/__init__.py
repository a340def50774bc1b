"""Design spaces of TensorIR programs."""
