"""What runs, in which order, where: configuration, the DAG, its compiler, the local executor, the command line."""
