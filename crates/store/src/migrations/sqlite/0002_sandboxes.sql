-- Columns hold what is asked for; `life`, `spec` and `body` hold the rest, as JSON. A checksum covers
-- its row. Times are milliseconds since 1970.
CREATE TABLE sandboxes (
    id           TEXT    PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    alias        TEXT,
    node         TEXT    NOT NULL,
    -- 'purged' is a row that is kept only so that its id and alias are never given again.
    phase        TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    phase_since  INTEGER NOT NULL,
    -- The last event, and the first that is still kept.
    sequence     INTEGER NOT NULL,
    earliest     INTEGER NOT NULL,
    life         TEXT    NOT NULL,
    checksum     INTEGER NOT NULL,
    UNIQUE (tenant, alias)
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_at DESC, id);
CREATE INDEX sandboxes_by_node ON sandboxes (node) WHERE phase NOT IN ('terminated', 'purged');
CREATE INDEX sandboxes_by_end ON sandboxes (phase_since) WHERE phase = 'terminated';

-- Apart from the row that every event rewrites.
CREATE TABLE sandbox_specs (
    sandbox_id TEXT    PRIMARY KEY REFERENCES sandboxes (id),
    spec       TEXT    NOT NULL,
    checksum   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sandbox_labels (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (sandbox_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX sandbox_labels_by_value ON sandbox_labels (name, value);

CREATE TABLE events (
    sandbox_id TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    checksum   INTEGER NOT NULL,
    PRIMARY KEY (sandbox_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE execs (
    tenant        TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    sandbox_id    TEXT    NOT NULL,
    -- 'running', 'ended', or 'purged': kept only so that the id is never given again.
    state         TEXT    NOT NULL,
    life          TEXT    NOT NULL,
    checksum      INTEGER NOT NULL,
    spec          TEXT    NOT NULL,
    spec_checksum INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX execs_by_sandbox ON execs (sandbox_id);
CREATE INDEX execs_that_run ON execs (tenant, sandbox_id) WHERE state = 'running';
