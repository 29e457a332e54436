"""Whether gemini-cli trusts a folder: it ignores the hooks of a project that it does not trust, and says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.agents.installation.json_hooks import JsonHooks
from holdfast.agents.installation.json_text import BrokenText
from holdfast.agents.installation.place import Place

_FOLDER, _PARENT = "TRUST_FOLDER", "TRUST_PARENT"


def trusts_project(place: Place) -> bool:
    """As its files say; what it is told when it is started (``--skip-trust`` is no trust) is not known."""
    settings = place.user_home / ".gemini"
    if place.environment.get("GEMINI_CLI_TRUST_WORKSPACE") == "true" or not _looks_at_trust(settings):
        return True
    trusted = _document(settings / "trustedFolders.json")
    for folder in (place.project, *place.project.parents):
        said = trusted.get(str(folder))
        if said is not None:
            return said in (_FOLDER, _PARENT)
        if any(value == _PARENT and Path(path).parent == folder for path, value in trusted.items()):
            return True
    return False


def _looks_at_trust(settings: Path) -> bool:
    security = _document(settings / "settings.json").get("security")
    known = security.get("folderTrust") if isinstance(security, dict) else None
    return not (isinstance(known, dict) and known.get("enabled") is False)


def _document(path: Path) -> Mapping[str, Any]:
    """What the file says; nothing if it cannot be read."""
    try:
        return JsonHooks(with_comments=True).settings(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError, BrokenText):
        return {}
