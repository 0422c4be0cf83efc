"""What a model version keeps of the run that made it: everything to judge the model by and to make it again.

By path below the version's folder `evidence/`:

    execution.json                  the run: parameters, each step's state and warnings, the gate's conditions
    definition.json                 the compiled definition that ran
    <step>/<output>/<file>          of each step its property files, its seal (settings, digests, versions of libraries)
                                    and its reports
    ...                             texts that the run was given for this, such as the whole configuration
"""

from __future__ import annotations

import json

from pipeline.local.execution import Execution
from steps.contract import files_without_content


def gather_evidence(execution: Execution) -> dict[str, bytes]:
    """The content of each file by its path. Called while the registering step runs."""
    kept = {name: text.encode() for name, text in execution.kept_texts.items()}
    kept["execution.json"] = _json(execution.result.as_json())
    kept["definition.json"] = _json(execution.definition)
    for step, record in execution.result.steps.items():
        # A copy: steps that still run add theirs.
        known = list(execution.scope.property_files.items())
        property_files = [path for (name, _), path in known if name == step]
        for output, folder in record.outputs.items():
            # What lies in folders of their own is for looking into, such as tokenizers that were not chosen.
            paths = {folder / name for name in files_without_content(folder) if "/" not in name}
            paths |= {path for path in property_files if path.is_relative_to(folder)}
            for path in sorted(paths):
                kept[f"{step}/{output}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return kept


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
