"""``torch.compile(model, backend="chameleon")``."""
