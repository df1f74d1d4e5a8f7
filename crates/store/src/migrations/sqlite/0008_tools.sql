-- Tools, their versions, snapshots of drafts, runs and sessions. Columns hold what is asked for; `body` holds all, as
-- JSON. The checksum covers the row. Times are milliseconds since 1970.
CREATE TABLE tools (
    id       TEXT    PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    slug     TEXT    NOT NULL,
    body     TEXT    NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (tenant, slug)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_versions (
    id       TEXT    PRIMARY KEY,
    tool_id  TEXT    NOT NULL REFERENCES tools (id),
    number   INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (tool_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_snapshots (
    id         TEXT    PRIMARY KEY,
    tool_id    TEXT    NOT NULL REFERENCES tools (id),
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    checksum   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tool_snapshots_by_age ON tool_snapshots (created_at);
CREATE INDEX tool_snapshots_by_tool ON tool_snapshots (tool_id);

-- `payload`, `stdout` and `stderr` are JSON too, so that a text may hold every character.
CREATE TABLE tool_runs (
    id        TEXT    PRIMARY KEY,
    tool_id   TEXT    NOT NULL REFERENCES tools (id),
    user_name TEXT    NOT NULL,
    node      TEXT    NOT NULL,
    status    TEXT    NOT NULL,
    queued_at INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    payload   TEXT,
    stdout    TEXT    NOT NULL,
    stderr    TEXT    NOT NULL,
    checksum  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tool_runs_by_user ON tool_runs (tool_id, user_name, queued_at DESC, id);
CREATE INDEX tool_runs_by_age ON tool_runs (queued_at);
CREATE INDEX tool_runs_unfinished ON tool_runs (node) WHERE status IN ('queued', 'running');

CREATE TABLE tool_sessions (
    tool_id    TEXT    NOT NULL REFERENCES tools (id),
    user_name  TEXT    NOT NULL,
    context    TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    checksum   INTEGER NOT NULL,
    PRIMARY KEY (tool_id, user_name, context)
) STRICT, WITHOUT ROWID;
