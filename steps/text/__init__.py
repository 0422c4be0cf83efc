"""Text without torch: reading, normalising, deduplicating, tokenizers, fertility, packing, the chat template."""
