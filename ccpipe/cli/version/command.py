"""``ccpipe version``: versions of ccpipe, Python and libraries, for bug reports."""

from typing import Annotated

from cyclopts import Parameter

from ccpipe.cli.console.output import TableOrJson
from ccpipe.cli.version.versions import show


def version(*, output: Annotated[TableOrJson, Parameter(alias="-o")] = "table") -> None:
    """Show the versions of ccpipe, Python and libraries.

    Shows also whether the compiled kernels are in use, and the command to install
    each missing library.

    Examples: ccpipe version
              ccpipe version -o json
              ccpipe version -o json | jq -r .kernel

    Parameters
    ----------
    output
        Output format.
    """
    show(output)
