"""Latency-bandwidth models: `modelling.model` makes them of a run, `predict` asks them."""
