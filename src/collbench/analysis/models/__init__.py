"""Latency-bandwidth models: `validation.model` fits one to a series, `predict` evaluates it, `run_models` does both."""
