"""The same DAG on Amazon SageMaker: sent, started, watched and scheduled from the command line."""
