"""How the steps travel: launch.py, started inside a SageMaker container or by the local executor."""
