-- The bindings of scopes to sandboxes, and the keys of requests that made them. Columns hold what is asked
-- for; `body` holds the rest, as JSON. A checksum covers its row. Times are milliseconds since 1970.
CREATE TABLE sessions (
    id          TEXT    PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    scope_type  TEXT    NOT NULL,
    scope_id    TEXT    NOT NULL,
    sandbox_id  TEXT    NOT NULL,
    node        TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    -- 'live', 'released' or 'ended'.
    state       TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    checksum    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A scope has one binding of each generation, and one that has not ended; so has a sandbox.
CREATE UNIQUE INDEX sessions_by_scope ON sessions (tenant, scope_type, scope_id, generation);
CREATE UNIQUE INDEX sessions_of_scope ON sessions (tenant, scope_type, scope_id) WHERE state <> 'ended';
CREATE UNIQUE INDEX sessions_of_sandbox ON sessions (sandbox_id) WHERE state <> 'ended';
CREATE INDEX sessions_by_sandbox ON sessions (sandbox_id);
CREATE INDEX sessions_by_node ON sessions (node) WHERE state <> 'ended';

CREATE TABLE idempotency (
    tenant      TEXT    NOT NULL,
    -- The key of the caller.
    principal   TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    request     BLOB    NOT NULL CHECK (length(request) = 32),
    session_id  TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_end ON idempotency (expires_at);
