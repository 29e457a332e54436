"""The versions of the protocol: which one a request speaks, and what the client can do in it.

Up to 2025-11-25 a connection begins with ``initialize``, which settles both. From 2026-07-28 on every request says them
itself, and a client asks ``server/discover`` first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.mcp.messages import INVALID_PARAMS, UNSUPPORTED_VERSION, Refused

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ENVELOPE_VERSIONS = ("2026-07-28",)
"""In which each request brings its version in an envelope: its ``_meta``."""
_WITH_BATCHES = ("2024-11-05", "2025-03-26")

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"


class Client(msgspec.Struct, frozen=True):
    """What is known of the client for one request."""

    version: str = HANDSHAKE_VERSIONS[-1]
    capabilities: dict[str, Any] = {}

    @property
    def is_enveloped(self) -> bool:
        return self.version in ENVELOPE_VERSIONS

    @property
    def reads_batches(self) -> bool:
        return self.version in _WITH_BATCHES

    @property
    def knows_annotations(self) -> bool:
        return self.version >= "2025-03-26"

    @property
    def knows_structure(self) -> bool:
        """Titles, schemas of results, and results that follow them."""
        return self.version >= "2025-06-18"

    @property
    def wants_wrong_arguments_as_results(self) -> bool:
        """So that the model reads what was wrong, and not only the client."""
        return self.version >= "2025-11-25"

    @property
    def can_ask(self) -> bool:
        """Whether the client shows a form to the person."""
        asking = self.capabilities.get("elicitation")
        if self.version < "2025-06-18" or not isinstance(asking, dict):
            return False
        return not asking or "form" in asking


def client_from_handshake(params: dict[str, Any]) -> Client:
    wanted, capabilities = params.get("protocolVersion"), params.get("capabilities", {})
    if not isinstance(wanted, str) or not isinstance(capabilities, dict):
        raise Refused(INVALID_PARAMS, "initialize needs a protocolVersion, which is text, and capabilities, an object.")
    return Client(wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1], capabilities)


def client_of(params: dict[str, Any], connected: Client) -> Client:
    """Who sent a request: its envelope if it has one, else the client of the handshake."""
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        raise Refused(INVALID_PARAMS, "_meta is an object.")
    if _VERSION_KEY not in meta:
        return connected
    version, capabilities = meta[_VERSION_KEY], meta.get(_CAPABILITIES_KEY, {})
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise Refused(INVALID_PARAMS, f"{_VERSION_KEY} is text, and {_CAPABILITIES_KEY} an object.")
    if version not in ENVELOPE_VERSIONS:
        known = {"supported": list(ENVELOPE_VERSIONS), "requested": version}
        raise Refused(UNSUPPORTED_VERSION, f"Protocol version {version} is not supported here.", known)
    return Client(version, capabilities)
