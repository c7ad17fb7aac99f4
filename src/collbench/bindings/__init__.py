"""How libraries are called: the parts that the backends are made of."""
