"""Translation of errors of nats-py and JetStream, with messages that suggest a remedy."""

import re

from ccpipe.errors import DeniedError, UnavailableError

FULL = {
    10002: "the limits of the account are reached",
    10023: "the server has no more storage for JetStream (max_file_store, or its disk is full)",
    10028: "the server has no more memory for JetStream",
    10047: "the server has no more storage for JetStream (max_file_store, or its disk is full)",
    10122: "stream_size is more than the account may use",
}
"""JetStream's error codes for exhausted resources (its ``errors.json``)."""

STORE_FAILED = 10077
"""JetStream's error code for a message that its store rejected, for any reason."""

_DISK = re.compile(r"no space left|quota exceeded|input/output error|read-only file|too large")
_LIMIT = re.compile(r"maximum (?:bytes|messages)")

CURE = (
    "free space below its store_dir, then restart nats-server: after an error of its disk it goes "
    "on refusing until then"
)


def explain(error: Exception, doing: str) -> UnavailableError | DeniedError:
    """Translate an error of the client; `doing` names the failed operation."""
    import nats.errors
    import nats.js.errors

    if isinstance(error, nats.js.errors.APIError):
        if error.code in (401, 403):
            return DeniedError(f"{doing}: {error.description}")
        if reason := storage_problem(error.err_code, error.description or ""):
            return UnavailableError(f"{doing}: {reason}")
    text = str(error) or type(error).__name__
    if isinstance(error, nats.js.errors.ServiceUnavailableError) and error.description:
        text = error.description
    elif isinstance(error, nats.js.errors.ServiceUnavailableError | nats.errors.NoRespondersError):
        text = "JetStream does not answer; is it on? (else set bus.jetstream = false)"
    elif isinstance(error, nats.js.errors.NoStreamResponseError):
        text = "no stream keeps this subject yet"
    elif isinstance(error, TimeoutError | nats.errors.TimeoutError):
        text = "the server did not answer in time"
    elif isinstance(error, nats.js.errors.APIError) and error.description:
        text = error.description
    return UnavailableError(f"{doing}: {text}")


def storage_problem(code: int | None, description: str) -> str:
    """Describe which resource of the server is exhausted, and the remedy; empty if none."""
    if _DISK.search(description):
        return f"the disk of JetStream fails ({description}): {CURE}"
    if code == STORE_FAILED and _LIMIT.search(description):
        return (
            f'the stream is full and refuses what is new ({description}; stream_discard = "new"): '
            "let the bridges catch up, or raise stream_size and type `ccpipe streams apply`"
        )
    if code == STORE_FAILED:
        return f"JetStream cannot store messages ({description}): see the server's log; {CURE}"
    if code in FULL:
        return f"{FULL[code]} ({description}): see `ccpipe streams show`, raise the limit or {CURE}"
    return ""
