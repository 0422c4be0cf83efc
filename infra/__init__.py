"""The account: a CDK app that puts the pipeline into it. Imports pipeline, never the other way round."""
