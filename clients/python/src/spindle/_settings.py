"""Where the server is, who asks, and how patient a client is."""

from __future__ import annotations

import os
import re
import ssl
import stat
import threading
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from ._version import __version__
from .errors import ConfigError

DEFAULT_URL = "http://127.0.0.1:7420"
DEFAULT_REQUEST_TIMEOUT_S = 30.0
DEFAULT_RETRY_FOR_S = 10.0


class Settings:
    """What a client was told, with the environment and the defaults in.

    The environment is that of the ``spindle`` commands: ``SPINDLE_URL``, ``SPINDLE_TOKEN_FILE``,
    ``SPINDLE_TOKEN``, ``SPINDLE_CA_FILE``, ``SPINDLE_CERT``, ``SPINDLE_KEY``.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        cert_file: Optional[str] = None,
        key_file: Optional[str] = None,
        request_timeout: float = DEFAULT_REQUEST_TIMEOUT_S,
        retry_for: float = DEFAULT_RETRY_FOR_S,
    ) -> None:
        self.url = url or _variable("SPINDLE_URL") or DEFAULT_URL
        self.host, self.port, self.prefix, is_tls = _parts(self.url)
        if token is None:
            token_file = token_file or _variable("SPINDLE_TOKEN_FILE")
            token = None if token_file else _variable("SPINDLE_TOKEN")
        self.token = TokenSource(token, token_file)
        self.request_timeout_s = request_timeout
        self.retry_for_s = retry_for
        self.tls: Optional[ssl.SSLContext] = None
        if is_tls:
            self.tls = _tls(
                ca_file or _variable("SPINDLE_CA_FILE"),
                cert_file or _variable("SPINDLE_CERT"),
                key_file or _variable("SPINDLE_KEY"),
            )
        host = f"[{self.host}]" if ":" in self.host else self.host
        self._host_header = (
            f"Host: {host}:{self.port}\r\nUser-Agent: spindle-python/{__version__}\r\n"
        )

    def fixed_headers(self) -> str:
        """The lines that each request has."""
        token = self.token.current
        if token is None:
            return self._host_header
        return f"{self._host_header}Authorization: Bearer {token}\r\n"


class TokenSource:
    """The token that says who asks. One from a file may change while the program runs."""

    def __init__(self, token: Optional[str], file: Optional[str] = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        if file is not None:
            token = _read_token(file)
        elif token is not None:
            token = _checked_token(token, "the token")
        #: The token to present, if there is one.
        self.current = token

    def reload(self, refused: Optional[str]) -> bool:
        """Reads the file again. True if there is another token now than the refused one."""
        with self._lock:
            if self._file is not None:
                self.current = _read_token(self._file)
            return self.current != refused


def _variable(name: str) -> Optional[str]:
    """A variable of the environment; an empty one counts as not set."""
    return os.environ.get(name) or None


def _parts(url: str) -> tuple[str, int, str, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"{url!r}: the URL of a server begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL of a server has no user and password: a token says who you are")
    if not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{url!r}: the URL of a server is a host, a port and maybe a path")
    if not re.fullmatch(r"[!-~]*", parts.netloc + parts.path):
        raise ConfigError(f"{url!r}: the URL of a server is printable ASCII")
    is_tls = parts.scheme == "https"
    default_port = 443 if is_tls else 80
    return parts.hostname, port or default_port, parts.path.rstrip("/"), is_tls


def _tls(
    ca_file: Optional[str], cert_file: Optional[str], key_file: Optional[str]
) -> ssl.SSLContext:
    if (cert_file is None) != (key_file is None):
        raise ConfigError("a certificate needs its key, and a key its certificate")
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (ca_file, cert_file, key_file) if name)
        raise ConfigError(f"{files or 'the public authorities'}: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _read_token(file: str) -> str:
    path = Path(file)
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO:
            raise ConfigError(f"{file}: others may read or write it: chmod o= {file}")
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {file}: {error}") from None
    return _checked_token(text.strip(), file)


def _checked_token(token: str, where: str) -> str:
    if not re.fullmatch(r"[!-~]+", token):
        raise ConfigError(f"{where}: a token is one word of printable ASCII")
    return token
