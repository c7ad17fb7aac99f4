"""Latency-bandwidth models: `model.model` fits one to a series of cells, `predict` evaluates it at other points."""
