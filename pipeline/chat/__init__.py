"""`langadapt chat`: a conversation with a model of this machine or behind a SageMaker endpoint, in the terminal."""
