"""What instance types are like, where the service treats them differently."""

from __future__ import annotations

import re

# Families of accelerated instances whose storage is local in every size.
LOCAL_STORAGE_FAMILIES = frozenset({"g4dn", "g5", "g6", "g6e", "gr6", "p4d", "p4de", "trn1", "trn1n", "trn2", "inf1"})


def has_local_storage(instance_type: str) -> bool:
    """True where an instance type such as ml.g5.xlarge brings its own disks, which refuse VolumeKmsKeyId."""
    family = instance_type.split(".")[1]
    # A d after the generation (m5d, c6gd, r5dn) stands for local disks; p5 and all later p families have them.
    return (
        family in LOCAL_STORAGE_FAMILIES
        or re.match(r"p[5-9]", family) is not None
        or re.match(r"[a-z]+\d+[a-z]*d", family) is not None
    )
