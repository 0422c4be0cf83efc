"""How the steps travel: the launcher, started inside a SageMaker container or by the local executor, and the image."""
