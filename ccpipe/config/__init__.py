"""Configuration: a TOML file, the environment and flags, merged into one Struct.

An unknown key or a bad value is an error before anything starts. The error names the file, the
key path and, for an unknown key, the most similar key.
"""

from ccpipe.config.converter import Duration, Interval, Size, mask, plain, to_struct, with_unit
from ccpipe.config.files import (
    authorization,
    check_credentials,
    find_config,
    listen_address,
    make_directory_of,
    read_secret,
    read_text,
    read_toml,
    state_directory,
)
from ccpipe.config.loader import ENVIRONMENT, load, merge_tables, set_at_path, split_list
from ccpipe.config.site import (
    Batching,
    Bus,
    ControlOptions,
    DashboardOptions,
    Publish,
    Recipe,
    Site,
    SonarOptions,
    SpoolOptions,
    TelemetryOptions,
)

__all__ = [
    "ENVIRONMENT",
    "Batching",
    "Bus",
    "ControlOptions",
    "DashboardOptions",
    "Duration",
    "Interval",
    "Publish",
    "Recipe",
    "Site",
    "Size",
    "SonarOptions",
    "SpoolOptions",
    "TelemetryOptions",
    "authorization",
    "check_credentials",
    "find_config",
    "listen_address",
    "load",
    "make_directory_of",
    "mask",
    "merge_tables",
    "plain",
    "read_secret",
    "read_text",
    "read_toml",
    "set_at_path",
    "split_list",
    "state_directory",
    "to_struct",
    "with_unit",
]
