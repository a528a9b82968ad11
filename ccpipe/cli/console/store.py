"""The store that the dashboard and ``ccpipe jobs`` read."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from ccpipe.config import Site
    from ccpipe.history.interfaces import History

log = logging.getLogger(__name__)

Store = Annotated[str | None, Parameter(name="--history", metavar="WHERE")]


def open_store(site: "Site", where: str | None) -> "History | None":
    """Open the store of the option, or of the configuration; None without either."""
    from ccpipe.history.open import open_history
    from ccpipe.live.feed import averaged_metrics

    options = site.history
    where = where or options.store
    if not where:
        return None
    if "://" not in where and not Path(where).expanduser().exists():
        log.warning(
            "no directory %s: longer history will be available once a bridge has written to it",
            where,
        )
    login = {"user": options.user, "password_file": options.password_file}
    return open_history(where, averaged_metrics, **login)
