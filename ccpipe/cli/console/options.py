"""Options that commands share."""

from cyclopts import Parameter

from ccpipe.cli.console.arguments import seconds
from ccpipe.cli.console.where import Where

__all__ = ["Where", "seconds"]

Parameter(name="*")(Where)
