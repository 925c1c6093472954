"""How payloads and results are written and read.

A serializer of your own is any object with the two methods of :class:`Serializer`.
"""

from __future__ import annotations

import binascii
import json
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol

from .errors import SerializationError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the server calls the types of bytes: ``json``, ``bytes`` or ``msgpack``.
ContentType = str


class Serializer(Protocol):
    """Turns payloads and results into bytes and back. What it raises makes the job fail."""

    def encode(self, value: Any) -> tuple[ContentType, bytes]:
        """A value as bytes, and what they are. The bytes of ``json`` are JSON in UTF-8."""
        ...

    def decode(self, content_type: ContentType, content: Any) -> Any:
        """The value of what arrived: parsed JSON for ``json``, else the bytes."""
        ...


class JsonSerializer:
    """JSON, which every language and every door of the server reads. The default.

    Bytes, as clients of other doors submit them, are read as JSON text.
    """

    def __init__(
        self,
        *,
        default: Optional[Callable[[Any], Any]] = None,
        object_hook: Optional[Callable[[dict[str, Any]], Any]] = None,
    ) -> None:
        """``default`` and ``object_hook`` are those of :mod:`json`."""
        self._default = default
        self._object_hook = object_hook

    def encode(self, value: Any) -> tuple[ContentType, bytes]:
        """The value as compact JSON. NaN, infinities and lone surrogates have none."""
        return "json", json_bytes(value, self._default)

    def decode(self, content_type: ContentType, content: Any) -> Any:
        """The value. No bytes at all are None."""
        if content_type == "msgpack":
            raise ValueError("it is MessagePack: give the task a serializer that reads it")
        if content_type == "json":
            if self._object_hook is None:
                return content
            content = json_bytes(content)
        if not content:
            return None
        return json.loads(content, object_hook=self._object_hook)


class BytesSerializer:
    """Bytes as they are. JSON arrives as its text in UTF-8."""

    def encode(self, value: Any) -> tuple[ContentType, bytes]:
        """The bytes; None is no bytes."""
        if value is None:
            return "bytes", b""
        return "bytes", bytes(memoryview(value))

    def decode(self, content_type: ContentType, content: Any) -> bytes:
        """The bytes."""
        if content_type == "json":
            return json_bytes(content)
        result: bytes = content
        return result


_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Any, default: Optional[Callable[[Any], Any]] = None) -> bytes:
    """Compact JSON in UTF-8."""
    if default is None:
        return _ENCODE(value).encode()
    separators = (",", ":")
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=separators, default=default
    )
    return text.encode()


def written(serializer: Serializer, value: Any, code: str) -> tuple[ContentType, bytes]:
    """A value through a serializer; ``code`` is for the error if it cannot."""
    try:
        return serializer.encode(value)
    except Exception as error:
        raise SerializationError(code, _why(error)) from error


def read(serializer: Serializer, answer: Mapping[str, Any], name: str, code: str) -> Any:
    """The value of a part of an answer: ``payload`` of a job, ``value`` of a result."""
    content_type = answer.get(f"{name}_type") or answer.get("type") or "bytes"
    try:
        if content_type == "json" and name in answer:
            content = answer[name]
        else:
            content_type = "bytes" if content_type == "json" else content_type
            base64 = answer.get(f"{name}_base64", answer.get("base64")) or ""
            content = binascii.a2b_base64(base64)
        return serializer.decode(content_type, content)
    except Exception as error:
        raise SerializationError(code, _why(error)) from error


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
