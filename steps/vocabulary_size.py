"""The number that vocabularies are padded to; settings and steps read it here."""

# A vocabulary of a multiple of 64 rows keeps matrix products on fast paths of the hardware.
VOCABULARY_MULTIPLE = 64
