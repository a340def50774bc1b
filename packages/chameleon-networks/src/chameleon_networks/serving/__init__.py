"""How networks serve several clients at once, beside other frameworks and busy processes."""
