"""The work: one module a pipeline step, started as `python -m steps.<name>`."""
