"""What each engine is told, word by word, where it differs."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from rove.metrics.schema import PROGRESS, ROLLUPS, SERIES, DatabaseError, insert_new, upsert


def sql(statement: object, dialect: object) -> str:
    assert isinstance(statement, sa.sql.expression.ClauseElement)
    return " ".join(str(statement.compile(dialect=dialect)).replace("`", "").split())


def test_servers_get_their_own_upsert() -> None:
    on_postgresql = sql(upsert(ROLLUPS, "postgresql"), postgresql.dialect())
    assert "ON CONFLICT (metric, labels, resolution_s, start) DO UPDATE SET" in on_postgresql
    assert "rate = excluded.rate" in on_postgresql
    on_mysql = sql(upsert(PROGRESS, "mysql"), mysql.dialect())
    assert "ON DUPLICATE KEY UPDATE" in on_mysql
    assert "position = VALUES(position)" in on_mysql
    assert "job = VALUES" not in on_mysql
    assert sql(insert_new(SERIES, "mariadb"), mysql.dialect()).startswith("INSERT IGNORE")
    with pytest.raises(DatabaseError, match="use SQLite, PostgreSQL or MySQL"):
        upsert(ROLLUPS, "oracle")


@pytest.mark.parametrize("dialect", [mysql.dialect(), postgresql.dialect()])
def test_keys_do_not_count_up_by_themselves(dialect: object) -> None:
    text = sql(sa.schema.CreateTable(ROLLUPS), dialect)
    assert "PRIMARY KEY (metric, labels, resolution_s, start)" in text
    assert "SERIAL" not in text
    assert "AUTO_INCREMENT" not in text
