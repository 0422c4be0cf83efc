"""Somebody's processing script: customers and calls in, three splits out."""

import argparse
import csv
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--customers", type=Path)
parser.add_argument("--calls", type=Path)
parser.add_argument("--out", type=Path)
parser.add_argument("--test-share", type=float)
parser.add_argument("--tag")
options = parser.parse_args()


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


calls = {row["id"]: int(row["calls"]) for row in table(options.calls / "calls.csv")}
rows = [(calls[row["id"]], int(row["left"])) for row in table(options.customers / "customers.csv")]
cut = round(len(rows) * (1 - options.test_share))
for name, part in (("train", rows[:cut]), ("test", rows[cut:])):
    folder = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.csv").write_text("".join(f"{number},{left}\n" for number, left in part))
facts = {"rows": len(rows), "columns": ["calls", "left"], "balanced": sum(left for _, left in rows) * 2 == len(rows)}
facts |= {"tag": options.tag, "stage": os.environ["STAGE"], "execution": os.environ["EXECUTION"]}
(options.out / "facts").mkdir(exist_ok=True)
(options.out / "facts" / "facts.json").write_text(json.dumps(facts))
