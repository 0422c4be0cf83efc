"""The contract between the DAG and a step: one flat config and named folders in, one sealed folder out.

A step module ends with

    if __name__ == "__main__":
        folders = [Folder("corpus"), Folder("base_model", sealed=False)]
        sys.exit(run_step(train_tokenizer, TrainTokenizerConfig, folders))

and is run as

    python -m steps.train_tokenizer --corpus DIR --base_model DIR --output DIR [--vocabulary_sizes=[4096,8192]]

`run_step` parses the command line, checks the seals of the input folders, calls the step's function as
`function(config, folders)`, and seals the output folder with manifest.json, written last and atomically. The
function returns its headline metrics, a flat dict of finite numbers and short texts.

Exit codes: 0 done; 1 user error; 2 gate closed (the executor's); 70 our bug; 130 interrupted; 143 stopped by SIGTERM.
"""

from __future__ import annotations

from steps.contract.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_GATE_CLOSED,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USER_ERROR,
    PLACE_ERRORS,
    ConfigError,
    StepError,
    UserError,
    nearest_name,
)
from steps.contract.faults import memory_bytes, mendable_error, place_error, size_text
from steps.contract.files import (
    all_files,
    check_name,
    file_sha256,
    refusing_vanished,
    sync_folder,
    table_digest,
    write_atomically,
    write_json,
)
from steps.contract.folders import MANIFEST_NAME, UNFINISHED_NAME, Folder, StepFolders, prepare_output
from steps.contract.running import (
    ERROR_FILE_VARIABLE,
    METRICS_LINE_PREFIX,
    PROGRESS_LINE_PREFIX,
    WARNING_LINE_PREFIX,
    help_text,
    note_progress,
    parse_arguments,
    report,
    report_progress,
    run_step,
    warn,
)
from steps.contract.seals import (
    CODE_DIGEST_VARIABLE,
    RECORDED_LIBRARIES,
    FileEntry,
    Manifest,
    Warned,
    check_metrics,
    content_digest,
    file_entry,
    files_to_seal,
    files_without_content,
    find_seals,
    library_versions,
    peak_memory_bytes,
    read_seal,
    seal,
    seal_path,
)
from steps.contract.settings import LARGEST_SEED, StepConfig, config_arguments, describe_validation_error, parse_config

__all__ = [
    "CODE_DIGEST_VARIABLE",
    "ERROR_FILE_VARIABLE",
    "EXIT_BUG",
    "EXIT_DONE",
    "EXIT_GATE_CLOSED",
    "EXIT_INTERRUPTED",
    "EXIT_TERMINATED",
    "EXIT_USER_ERROR",
    "LARGEST_SEED",
    "MANIFEST_NAME",
    "METRICS_LINE_PREFIX",
    "PLACE_ERRORS",
    "PROGRESS_LINE_PREFIX",
    "RECORDED_LIBRARIES",
    "UNFINISHED_NAME",
    "WARNING_LINE_PREFIX",
    "ConfigError",
    "FileEntry",
    "Folder",
    "Manifest",
    "StepConfig",
    "StepError",
    "StepFolders",
    "UserError",
    "Warned",
    "all_files",
    "check_metrics",
    "check_name",
    "config_arguments",
    "content_digest",
    "describe_validation_error",
    "file_entry",
    "file_sha256",
    "files_to_seal",
    "files_without_content",
    "find_seals",
    "help_text",
    "library_versions",
    "memory_bytes",
    "mendable_error",
    "nearest_name",
    "note_progress",
    "parse_arguments",
    "parse_config",
    "peak_memory_bytes",
    "place_error",
    "prepare_output",
    "read_seal",
    "refusing_vanished",
    "report",
    "report_progress",
    "run_step",
    "seal",
    "seal_path",
    "size_text",
    "sync_folder",
    "table_digest",
    "warn",
    "write_atomically",
    "write_json",
]
