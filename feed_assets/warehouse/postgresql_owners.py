"""Check of the state tables in PostgreSQL: no other role may be able to run code with the rights of a load or reader.

Such code may be in a trigger, a rule or an index expression. An owner could add it at any time.
"""

from collections.abc import Sequence

from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.engines import Connection
from feed_assets.warehouse.statements import STATE

_UNTRUSTED = (
    "NOT r.rolsuper AND r.rolname NOT IN (current_user, 'pg_database_owner') "
    "AND r.oid <> (SELECT datdba FROM pg_database WHERE datname = current_database()) AND "
    "((SELECT rolsuper FROM pg_roles WHERE rolname = current_user) OR NOT pg_has_role(current_user, r.oid, 'USAGE'))"
)
"""The SQL condition that the owner `r` of an object is untrusted: through our use of it, `r` could gain rights.

For a superuser, pg_has_role is true for every role, so its result does not count.
"""

_STATE_TABLES = (
    f"pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = {literal(STATE)} "
    "AND c.relkind IN ('r', 'p')"
)
_IN_TABLE = "format('%I.%I', n.nspname, c.relname)"
_ON_TABLE = "%I ON %I.%I;', {0}, n.nspname, c.relname)"
_PLANTED = (
    "SELECT 1, 'SCHEMA', quote_ident(n.nspname), r.rolname, current_user::text FROM pg_namespace n "
    f"JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname IN ({{schemas}}) AND {_UNTRUSTED} "
    f"UNION ALL SELECT 1, 'TABLE', {_IN_TABLE}, r.rolname, current_user::text "
    f"FROM {_STATE_TABLES} JOIN pg_roles r ON r.oid = c.relowner WHERE {_UNTRUSTED} "
    f"UNION ALL SELECT 2, 'TRIGGER', t.tgname, {_IN_TABLE}, format('DROP TRIGGER {_ON_TABLE.format('t.tgname')} "
    f"FROM {_STATE_TABLES} JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal "
    f"UNION ALL SELECT 2, 'RULE', w.rulename, {_IN_TABLE}, format('DROP RULE {_ON_TABLE.format('w.rulename')} "
    f"FROM {_STATE_TABLES} JOIN pg_rewrite w ON w.ev_class = c.oid "
    f"UNION ALL SELECT 2, 'INDEX', i.relname, {_IN_TABLE}, format('DROP INDEX %I.%I;', n.nspname, i.relname) "
    f"FROM {_STATE_TABLES} JOIN pg_index x ON x.indrelid = c.oid AND num_nonnulls(x.indexprs, x.indpred) > 0 "
    "JOIN pg_class i ON i.oid = x.indexrelid ORDER BY 1, 2, 3"
)
"""The query for untrusted owners (rank 1), and for triggers, rules and index expressions of state tables (rank 2)."""


def planted_by_others(connection: Connection, schemas: Sequence[str]) -> str:
    """Return a message if one of the schemas or a state table has an untrusted owner, or could run code; else ''."""
    rows = connection.execute(_PLANTED.format(schemas=", ".join(map(literal, schemas))))
    return _message(*rows[0]) if rows else ""


def _message(rank: int, kind: str, name: str, place: str, text: str) -> str:
    """Return the message for a row of `_PLANTED`. `place` and `text` are owner and user, or table and statement."""
    if rank == 1:
        return (
            f"the {kind.lower()} {name} belongs to {place}: expected {text}, the database's owner, a superuser or "
            f"a role that {text} is in, or {place} could run code with the rights of {text}. If this role made it "
            f"unasked, drop it. Otherwise have a superuser execute: ALTER {kind} {name} OWNER TO {quoted(text)};"
        )
    return (
        f"{place} has the {kind.lower()} {name}: expected none, because it runs with the rights of who loads or reads. "
        f"Have the owner of the table execute: {text}"
    )
