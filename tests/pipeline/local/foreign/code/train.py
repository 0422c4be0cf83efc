"""Somebody's training image: the threshold of calls that tells best who left; written as SageMaker's toolkits do."""

import json
import os
from pathlib import Path

root = Path(os.environ["OPT_ML"])
settings = json.loads((root / "input/config/hyperparameters.json").read_text())
channels = json.loads((root / "input/config/inputdataconfig.json").read_text())
assert channels["train"]["ContentType"] == "text/csv", channels
lines = (root / "input/data/train/train.csv").read_text().splitlines()
rows = [tuple(map(int, line.split(","))) for line in lines]
best = 0
for epoch in range(int(settings["epochs"])):
    wrong = {limit: sum((calls > limit) != bool(left) for calls, left in rows) for limit in range(epoch + 1)}
    best = min(wrong, key=lambda limit: (wrong[limit], limit))
    print(f"epoch {epoch}: train_error={wrong[best] / len(rows):.3f};", flush=True)
    (root / "checkpoints" / f"epoch-{epoch}.json").write_text(json.dumps({"limit": best}))
(root / "model" / "weights").mkdir()
(root / "model" / "weights" / "limit.json").write_text(json.dumps({"limit": best}))
(root / "model" / "settings.json").write_text(json.dumps({"optimizer": settings["optimizer"]}))
(root / "output" / "data").mkdir(parents=True, exist_ok=True)
(root / "output" / "data" / "curve.txt").write_text("as logged\n")
