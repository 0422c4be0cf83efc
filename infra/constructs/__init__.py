"""Small constructs, each with keyword arguments alone; infra/stack.py wires them."""
