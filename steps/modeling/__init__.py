"""What needs torch: loading and saving, vocabulary replacement, training, checkpoints, bits per byte."""
