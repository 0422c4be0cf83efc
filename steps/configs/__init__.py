"""One flat frozen settings model a step, one file each: a new field changes the code digest of its own step alone."""
