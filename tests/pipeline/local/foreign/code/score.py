"""Somebody's evaluation script: unpacks the service's model.tar.gz and scores the test split."""

import json
import os
import sys
import tarfile
from pathlib import Path

model, test, out = (Path(word) for word in sys.argv[1:4])
with tarfile.open(model / "model.tar.gz") as archive:
    archive.extractall("unpacked", filter="data")
limit = json.loads(Path("unpacked/weights/limit.json").read_text())["limit"]
rows = [tuple(map(int, line.split(","))) for line in (test / "test.csv").read_text().splitlines()]
right = sum((calls > limit) == bool(left) for calls, left in rows)
report = {"metrics": [{"name": "accuracy", "value": right / len(rows)}], "grade": "A" if right == len(rows) else "B"}
report |= {"final": True, "train_error": float(os.environ["TRAIN_ERROR"])}
(out / "report.json").write_text(json.dumps(report))
