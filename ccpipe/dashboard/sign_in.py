"""Who sends a request: by a token, or by a header of a trusted reverse proxy."""

import hmac
import ipaddress
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from ccpipe.config import DashboardOptions, read_secret, read_text
from ccpipe.dashboard.access import EVERYTHING, AccessError, Role, Viewer
from ccpipe.errors import ConfigError
from ccpipe.listening import is_same_secret

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

SECRET_HEADER = "X-Ccpipe-Proxy-Secret"  # noqa: S105 - the name of a header
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host")
"""Headers that reverse proxies add."""
SESSION_SECONDS = 30 * 86400
MAX_NAME = 255
DEFAULT_PORTS = {"http": 80, "https": 443}

FileState: TypeAlias = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, and who has it."""

    secret: str
    viewer: Viewer

    @property
    def id(self) -> str:
        """Identifies the token in a session, without being of use to who reads it."""
        return self._digest("token")[:16]

    def session(self, expires: int) -> str:
        """Return the value of a cookie that is valid until a time."""
        return f"{self.id}.{expires}.{self._digest(f'session {expires}')}"

    def _digest(self, text: str) -> str:
        secret = self.secret.encode(errors="surrogatepass")  # it may be any bytes of a header
        return hmac.digest(secret, text.encode(), "sha256").hex()


class Tokens:
    """The tokens of a file, which is read again when it changes."""

    def __init__(self, option: str, path: str) -> None:
        """Read the file that an option names; raises ConfigError."""
        self.option, self.path = option, Path(path).expanduser()
        self._state = self._current_state()
        self._tokens = self._read()

    def find(self, secret: str) -> Token | None:
        token = self._current().get(Token(secret, EVERYTHING).id)
        return token if token and is_same_secret(secret, token.secret) else None

    def of_session(self, session: str) -> Token | None:
        """Return the token of a cookie; None if that has expired, or the token is not valid."""
        id_, _, rest = session.partition(".")
        token = self._current().get(id_)
        try:
            expires = int(rest.partition(".")[0])
        except ValueError:
            return None
        if token is None or expires < time.time():
            return None
        return token if is_same_secret(session, token.session(expires)) else None

    def _current(self) -> Mapping[str, Token]:
        state = self._current_state()
        if state != self._state:
            self._state = state
            try:
                self._tokens = self._read()
            except ConfigError as error:
                log.warning("no token is valid any more: %s", error)
                self._tokens = {}
        return self._tokens

    def _current_state(self) -> FileState:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Mapping[str, Token]:
        found: dict[str, Token] = {}
        for number, line in enumerate(read_text(self.option, str(self.path)).split("\n"), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                token = _token_of(line)
                if token.id in found:
                    raise ValueError("the token is in another line, too")
            except ValueError as error:
                where = f"{self.option}: {self.path}: line {number}"
                raise ConfigError(f"{where}: {error}") from None
            found[token.id] = token
        if not found:
            raise ConfigError(f"{self.option}: {self.path} contains no token")
        return found


def _token_of(line: str) -> Token:
    """Read ``token role user``, where the user may be missing for other roles than ``user``."""
    if not line.isprintable():
        raise ValueError("contains control characters")
    match line.split():
        case [secret]:
            return Token(secret, EVERYTHING)
        case [secret, role, user]:
            return Token(secret, Viewer(user, Role.named(role)))
        case [secret, role] if Role.named(role) > Role.USER:
            return Token(secret, Viewer("", Role.named(role)))
    raise ValueError("expected: token role user")


class SignIn:
    """Finds out who sends a request, and from where."""

    def __init__(self, options: DashboardOptions | None = None) -> None:
        """Read the files of the options; raises ConfigError. Without options all may see all."""
        self.options = options or DashboardOptions()
        path = self.options.token_file
        self.tokens = Tokens("dashboard.token_file", path) if path else None
        self._networks = [ipaddress.ip_network(each) for each in self.options.trusted_proxies]
        secret = self.options.proxy_secret_file
        self._secret = read_secret("dashboard.proxy_secret_file", secret) if secret else ""

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to sign in."""
        return self.tokens is None and not self.options.user_header

    def check(self, request: "web.Request") -> None:
        """Raise AccessError for a request of a foreign page, or one that imitates a proxy."""
        if self.is_open and not is_loopback(_hostname(request.headers.get("Host", ""))):
            # A foreign domain name may resolve to this address.
            raise AccessError("this dashboard is for this machine only")
        if self.is_open and any(header in request.headers for header in FORWARDED):
            # A proxy would make everybody an administrator.
            raise AccessError("set dashboard.user_header or token_file to use a reverse proxy")
        origin = request.headers.get("Origin")
        if origin is not None and not _is_same_site(origin, self._host(request)):
            raise AccessError("request of another page")
        for header in filter(None, (self.options.user_header, self.options.groups_header)):
            if header in request.headers and not self._is_proxy(request):
                raise AccessError(f"{header} is accepted from a trusted proxy only")

    def viewer(self, request: "web.Request", cookie: str) -> Viewer | None:
        """Return who sends a request that `check` accepts; None if that is unknown."""
        if self.is_open:
            return EVERYTHING
        if self.options.user_header and (user := self._single(request, self.options.user_header)):
            if len(user) > MAX_NAME:
                raise AccessError(f"{self.options.user_header} is longer than {MAX_NAME}")
            return Viewer(user, self._role(user, request))
        if self.tokens is None:
            return None
        given = request.headers.get("Authorization", "")
        if given.startswith("Bearer "):
            token = self.tokens.find(given.removeprefix("Bearer ").strip())
        else:
            token = self.tokens.of_session(request.cookies.get(cookie, ""))
        return token.viewer if token else None

    def session_of(self, secret: str) -> str | None:
        """Return a cookie's value for a token; None if the token is not valid."""
        token = self.tokens.find(secret) if self.tokens else None
        return token.session(int(time.time()) + SESSION_SECONDS) if token else None

    def is_secure(self, request: "web.Request") -> bool:
        """Whether the browser uses HTTPS, as the request itself or a trusted proxy shows."""
        forwarded = self._is_proxy(request) and request.headers.get("X-Forwarded-Proto")
        return request.secure or forwarded == "https"

    def _host(self, request: "web.Request") -> str:
        host: str = request.headers.get("Host", "")
        return request.headers.get("X-Forwarded-Host", host) if self._is_proxy(request) else host

    def _is_proxy(self, request: "web.Request") -> bool:
        if self._secret and not is_same_secret(
            request.headers.get(SECRET_HEADER, ""), self._secret
        ):
            return False
        if not self._networks:
            return bool(self._secret)
        try:
            address = ipaddress.ip_address(request.remote or "")
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _role(self, user: str, request: "web.Request") -> Role:
        header = self.options.groups_header
        names = self._single(request, header).split(",") if header else []
        groups = {name.strip() for name in names} - {""}
        if user in self.options.admins or groups.intersection(self.options.admin_groups):
            return Role.ADMIN
        if user in self.options.support or groups.intersection(self.options.support_groups):
            return Role.SUPPORT
        return Role.USER

    @staticmethod
    def _single(request: "web.Request", header: str) -> str:
        """Return the value of a header; several may be the client's and the proxy's."""
        values = request.headers.getall(header, [])
        if len(values) > 1:
            raise AccessError(f"{header} occurs {len(values)} times")
        value: str = values[0].strip() if values else ""
        if not value.isprintable():
            raise AccessError(f"{header} contains control characters")
        return value


def _is_same_site(origin: str, host: str) -> bool:
    """Return whether a page's origin is a host, with or without the default port."""
    try:
        page = urlsplit(origin)
        here = urlsplit(f"//{host}")
        port = DEFAULT_PORTS.get(page.scheme)
        same_port = (page.port or port) == (here.port or port)
    except ValueError:
        return False
    return bool(page.hostname) and page.hostname == here.hostname and same_port


def read_address(option: str, text: str) -> tuple[str, int]:
    """Read ``host:port``; without a host it is this machine only.

    Raises ConfigError naming the option.
    """
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{option}: {text!r}: {error}") from None
    if port is None:
        raise ConfigError(f"{option}: expected HOST:PORT, got {text!r}")
    return parts.hostname or "127.0.0.1", port


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
