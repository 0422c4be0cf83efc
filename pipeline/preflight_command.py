"""`langadapt preflight`: a checklist of what an execution needs of the account, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    Overrides,
    Parameters,
    Preset,
    expanded,
    for_a_reader,
    print_json,
)

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig
    from pipeline.remote.account import Account


def preflight(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    param: Parameters = None,
    as_json: AsJson = False,
) -> int:
    """Look at the account: buckets, role, function, images, code, data, instance types, quotas. Changes nothing.

    Exits with 1 where something is missing.
    """
    from pipeline.compile import compile_document
    from pipeline.config import load_config
    from pipeline.local.run import split_parameters
    from pipeline.remote.account import Account

    settings = load_config(preset, expanded(config), overrides or ())
    given = split_parameters(param or ())
    definition = compile_document(settings)
    ready = looked_at(settings, definition, Account(settings.aws.region), given, as_json=as_json, quiet=False)
    return 0 if ready else 1


def looked_at(
    settings: PipelineConfig,
    definition: Mapping[str, Any],
    account: Account,
    given: Mapping[str, str],
    *,
    as_json: bool,
    quiet: bool,
) -> bool:
    """Whether nothing is missing for an execution of a definition; prints the checklist.

    given: values of parameters as texts.  quiet: prints it only where something is missing.
    """
    from pipeline.remote.preflight import is_ready, preflight_lines
    from pipeline.remote.preflight import preflight as look

    found = look(settings, definition, account, given)
    ready = is_ready(found)
    if quiet and ready:
        return True
    with for_a_reader():
        if as_json:
            print_json({"checks": [vars(check) for check in found], "ok": ready})
        else:
            print("\n".join(preflight_lines(found)))
    return ready
