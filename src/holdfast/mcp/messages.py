"""The messages of JSON-RPC as MCP uses them: a line in, values out; and what is sent back."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

import msgspec

from holdfast.names import valid_text

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

_LARGEST_ID = 2**63 - 1
Id = int | str
_VERSION = {"jsonrpc": "2.0"}


class Refused(Exception):
    """The request is answered with this error of the protocol."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Request(msgspec.Struct, frozen=True):
    id: Id
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: dict[str, Any]


class Response(msgspec.Struct, frozen=True):
    """The client's answer to a request of ours."""

    id: Id
    result: dict[str, Any] | None
    """None if it answered with an error."""


class Malformed(msgspec.Struct, frozen=True):
    """Not a message; answered with this error."""

    id: Id | None
    code: int
    message: str


Message = Request | Notification | Response | Malformed


def read_line(line: bytes) -> Message | list[Message]:
    """What one line says; a list if it is a batch."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Malformed(_id_in(line), PARSE_ERROR, f"This line is not JSON: {error}.")
    if isinstance(value, list) and value:
        return [_message(each) for each in value]
    return _message(value)


def _id_in(line: bytes) -> Id | None:
    """The id of a message that a more generous reader understands: its client would wait for the answer for ever."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if _is_id(found) else None


def _message(value: Any) -> Message:
    if not isinstance(value, dict):
        return Malformed(None, INVALID_REQUEST, "A message is an object.")
    found = value.get("id")
    known = found if _is_id(found) else None
    if value.get("jsonrpc") != "2.0" or ("id" in value and known is None and "method" in value):
        return Malformed(known, INVALID_REQUEST, 'A message has "jsonrpc": "2.0", and an id that is text or a number.')
    if "method" not in value:
        return _response(value, known)
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        return Malformed(known, INVALID_REQUEST, "The method is text.")
    if not isinstance(params, dict):
        return Malformed(known, INVALID_PARAMS, "The params are an object.")
    return Notification(method, params) if known is None else Request(known, method, params)


def _response(value: dict[str, Any], known: Id | None) -> Message:
    if known is None or not ("result" in value or "error" in value):
        return Malformed(known, INVALID_REQUEST, "A message has a method, a result or an error.")
    result = value.get("result")
    return Response(known, result if isinstance(result, dict) else None)


def _is_id(value: object) -> TypeGuard[Id]:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST_ID
    return isinstance(value, str)


def answer(request_id: Id, result: dict[str, Any]) -> dict[str, Any]:
    return {**_VERSION, "id": request_id, "result": result}


def error_answer(request_id: Id | None, error: Refused | Malformed) -> dict[str, Any]:
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    if isinstance(error, Refused) and error.data is not None:
        said["data"] = error.data
    return {**_VERSION, "id": request_id, "error": said}


def request(request_id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {**_VERSION, "id": request_id, "method": method, "params": params}


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {**_VERSION, "method": method, "params": params}


def encoded(value: Any) -> bytes:
    """One line of JSON, without its end; a byte of a name that is no text is written ``\\xff``."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_with_valid_text(value))


def _with_valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(str(key)): _with_valid_text(each) for key, each in value.items()}
    return [_with_valid_text(each) for each in value] if isinstance(value, list | tuple) else value
