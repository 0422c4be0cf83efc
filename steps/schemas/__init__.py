"""One pydantic model for each file that other programs read, one file each; writer, gate and tests share it."""
