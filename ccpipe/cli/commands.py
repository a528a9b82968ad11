"""The subcommands: names, summaries, and their modules."""

COMMANDS = {
    "up": "Start everything on this machine: server, publisher, Parquet bridge, dashboard.",
    "publish": "Publish this node's metrics.",
    "bridge": "Run a recipe: move messages from a source into a store.",
    "dashboard": "Show nodes, jobs, events and the pipe's health in a browser.",
    "send": "Publish lines from files or standard input.",
    "tail": "Show messages on the bus.",
    "backfill": "Copy data from one store to another.",
    "query": "Query the Parquet files with SQL.",
    "top": "Show live cluster status: nodes, jobs, GPUs, message rates and errors.",
    "convert": "Convert files from one format to another.",
    "dead": "List, show and replay dead letters.",
    "check": "Check the pipe, as a plug-in for Nagios or Icinga.",
    "validate": "Check recipes, configuration and data files.",
    "acct": "Summarize or list the resource usage of Grid Engine or Slurm jobs.",
    "step": "Run a command and report its resource usage, as sacct does for a step.",
    "profile": "Merge, extract and show HDF5 profiles of Slurm jobs.",
    "simulate": "Publish the data of a simulated cluster of any size.",
    "control": "Read or set controls on nodes.",
    "auth": "Generate keys and the broker configuration for a site.",
    "streams": "Show and configure the cluster's JetStream streams.",
    "config": "Show the effective configuration, or generate it for other programs.",
    "nodelist": "Expand, compress and count node lists.",
    "plugins": "List sources, collectors, translators and sinks.",
    "init": "Write the initial files of a site: ccpipe.toml, nats.conf and recipes.",
    "completion": "Print the completion script for a shell.",
    "version": "Show the versions of ccpipe, Python and libraries.",
}
"""Subcommands by name, with their summaries for the list of commands."""

FOLDERS = {
    "acct",
    "check",
    "config",
    "convert",
    "dead",
    "profile",
    "publish",
    "step",
    "tail",
    "top",
    "version",
}
"""Commands implemented as packages."""

PLAIN = {name: f"ccpipe.cli.{name}.plain" for name in ("publish", "tail", "version")}
"""Fast parsers for simple command lines, which need less time and memory."""

HELP = """\
The monitoring pipe for HPC clusters.

Usage: ccpipe COMMAND [ARGUMENT ...]

Commands:
{commands}

Options:
  -h, --help    Show this help, or the arguments and examples of a command.
  --version     Show the version.

Examples:
  ccpipe up
  ccpipe tail --kind event
  ccpipe bridge victoriametrics"""


def print_commands() -> None:
    """Print the output of ``ccpipe --help``."""
    width = max(map(len, COMMANDS)) + 2
    commands = [f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items()]
    print(HELP.format(commands="\n".join(commands)))
