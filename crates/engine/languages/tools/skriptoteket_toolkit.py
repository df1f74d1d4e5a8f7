"""The readers of `ringfence_tool` under the names that scripts written for Skriptoteket import."""

from ringfence_tool import (
    get_action_parts,
    list_input_files,
    read_action,
    read_input_manifest,
    read_inputs,
    read_memory,
    read_settings,
)

# For type hints.
ActionPayload = dict
JsonValue = object
ManifestFile = dict

__all__ = [
    "ActionPayload",
    "JsonValue",
    "ManifestFile",
    "get_action_parts",
    "list_input_files",
    "read_action",
    "read_input_manifest",
    "read_inputs",
    "read_memory",
    "read_settings",
]
