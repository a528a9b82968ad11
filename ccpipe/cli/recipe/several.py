"""Running several recipes in one process, for ``ccpipe bridge``.

Each recipe has its own configuration, cluster, parts and state; they share the event loop, the
signals and the exit code. Log lines and errors name the recipe, metrics have its label.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping

from ccpipe.cli.console.log import subject
from ccpipe.cli.recipe.pipe import Pipe, rare_garbage_collection
from ccpipe.errors import CcpipeError
from ccpipe.process.signals import StopEvent, stop_signals
from ccpipe.telemetry import RecipesTelemetry

log = logging.getLogger(__name__)


@contextlib.contextmanager
def naming(recipe: str) -> Iterator[None]:
    """Name a recipe in log lines and errors."""
    token = subject.set(recipe)
    try:
        yield
    except CcpipeError as error:
        error.args = (f"{recipe}: {error}",)
        raise
    except Exception as error:
        error.add_note(f"in the recipe {recipe}")
        raise
    finally:
        subject.reset(token)


async def run_pipes(pipes: Mapping[str, Pipe], *, seconds: float | None = None) -> None:
    """Run the pipes of several recipes until each has ended, as ``run_pipe`` runs one.

    If one fails the others are stopped, as by a signal; then its error is raised.
    """
    errors: list[Exception] = []

    async def run(recipe: str, pipe: Pipe, stop: StopEvent) -> None:
        try:
            with naming(recipe):
                await pipe.run(stop)
        except Exception as error:  # noqa: BLE001 - raised when the others have ended
            log.error("%s", error)  # noqa: TRY400 - whoever raised it reports the traceback
            errors.append(error)
            stop.set()

    with served(pipes), rare_garbage_collection():
        async with stop_signals(seconds) as stop, asyncio.TaskGroup() as group:
            for recipe, pipe in pipes.items():
                group.create_task(run(recipe, pipe, stop))
    if errors:
        raise errors[0]


@contextlib.contextmanager
def served(pipes: Mapping[str, Pipe]) -> Iterator[None]:
    """Serve the telemetry of pipes; those with the same address share a server."""
    with contextlib.ExitStack() as stack:
        for address in {pipe.listen for pipe in pipes.values() if pipe.listen}:
            shared = {
                recipe: pipe.telemetry for recipe, pipe in pipes.items() if pipe.listen == address
            }
            stack.callback(RecipesTelemetry(shared).serve(address).close)
        yield
