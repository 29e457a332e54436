"""Private caches: which variables a program gets, and which of its own stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.execution.caches import private_caches


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    (tmp_path / "sandbox").mkdir()
    return tmp_path / "user"


def caches(home: Path, *allowed: Path, passed: dict[str, str] | None = None, **environment: str) -> dict[str, str]:
    folder = home.parent / "caches"
    return private_caches(folder, home.parent / "sandbox", passed or {}, {"HOME": str(home), **environment}, allowed)


def test_each_package_manager_has_its_folder_in_the_private_one(home: Path) -> None:
    found = caches(home)
    for variable in ("PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "YARN_CACHE_FOLDER", "CARGO_HOME", "GOCACHE"):
        assert Path(found[variable]).parent == home.parent / "caches"
    assert found["UV_LINK_MODE"] == "copy"


def test_a_cache_that_may_be_written_or_is_passed_stays_the_real_one(home: Path) -> None:
    (home / ".cache" / "pip").mkdir(parents=True)
    found = caches(home, home / ".cache", home / ".cargo", passed={"GOCACHE": "/g", "UV_LINK_MODE": "hardlink"})
    assert not {"PIP_CACHE_DIR", "UV_CACHE_DIR", "CARGO_HOME", "GOCACHE", "UV_LINK_MODE"} & found.keys()
    assert {"npm_config_cache", "GOMODCACHE"} <= found.keys()


def test_a_project_whose_yarn_may_keep_its_cache_inside_is_left_to_do_so(home: Path) -> None:
    (home.parent / "sandbox" / ".yarnrc.yml").touch()
    found = caches(home)
    assert "YARN_CACHE_FOLDER" not in found
    assert "YARN_GLOBAL_FOLDER" in found


def test_cargo_finds_its_settings_and_credentials(home: Path) -> None:
    real = home / ".cargo"
    (real / "registry").mkdir(parents=True)
    (real / "config.toml").write_text("[net]\n")
    for _ in range(2):
        private = Path(caches(home)["CARGO_HOME"])
    assert (private / "config.toml").read_text() == "[net]\n"
    assert [each.name for each in private.iterdir()] == ["config.toml"]
    moved = home.parent / "moved"
    moved.mkdir()
    (moved / "credentials.toml").write_text("secret\n")
    private = Path(caches(home, CARGO_HOME=str(moved))["CARGO_HOME"])
    assert (private / "credentials.toml").read_text() == "secret\n"


def test_nothing_is_made_where_a_program_led_the_private_folder(home: Path) -> None:
    (home / ".cargo").mkdir()
    (home / ".cargo" / "config.toml").write_text("[net]\n")
    victim = home.parent / "victim"
    victim.mkdir()
    (home.parent / "caches").mkdir()
    (home.parent / "caches" / "cargo").symlink_to(victim)
    caches(home)
    assert list(victim.iterdir()) == []
