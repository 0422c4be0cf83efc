"""Runs a compiled definition on this machine, step by step as processes in folders of the shape of /opt/ml."""
