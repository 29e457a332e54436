"""Alembic runs this to migrate, on the connection of ``schema.upgrade`` or, for its own command, on one made here.

In both cases everything is done in one transaction.
"""

from __future__ import annotations

import os
from logging.config import fileConfig

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, transactional_ddl=True)
    context.run_migrations()


def migrate_by_itself() -> None:
    """Migrate the records that Holdfast would use; for ``alembic`` on the command line."""
    from holdfast.config.loading import home_directory, load_settings
    from holdfast.db.by_alembic import our_errors_as_alembics, records_to_migrate

    if context.is_offline_mode():
        raise CommandError("Holdfast's migrations read the records, so they cannot be written as SQL only.")
    if context.config.config_file_name is not None:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    with our_errors_as_alembics():
        home = home_directory(os.environ)
        url = load_settings(home, None, os.environ).database_url
    with records_to_migrate(url, home) as connection:
        migrate(connection)


if "connection" in context.config.attributes:
    migrate(context.config.attributes["connection"])
else:
    migrate_by_itself()
