-- Tools, their versions, snapshots of drafts, runs and sessions. Columns hold what is asked for; `body` holds all, as
-- JSON. The checksum covers the row. Times are milliseconds since 1970.
CREATE TABLE tools (
    id       TEXT    COLLATE "C" PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    slug     TEXT    NOT NULL,
    body     TEXT    NOT NULL,
    checksum BIGINT NOT NULL,
    UNIQUE (tenant, slug)
);

CREATE TABLE tool_versions (
    id       TEXT    COLLATE "C" PRIMARY KEY,
    tool_id  TEXT COLLATE "C"    NOT NULL REFERENCES tools (id),
    number   BIGINT NOT NULL,
    body     TEXT    NOT NULL,
    checksum BIGINT NOT NULL,
    UNIQUE (tool_id, number)
);

CREATE TABLE tool_snapshots (
    id         TEXT    COLLATE "C" PRIMARY KEY,
    tool_id    TEXT COLLATE "C"    NOT NULL REFERENCES tools (id),
    created_at BIGINT NOT NULL,
    body       TEXT    NOT NULL,
    checksum   BIGINT NOT NULL
);

CREATE INDEX tool_snapshots_by_age ON tool_snapshots (created_at);
CREATE INDEX tool_snapshots_by_tool ON tool_snapshots (tool_id);

-- `payload`, `stdout` and `stderr` are JSON too, so that a text may hold every character.
CREATE TABLE tool_runs (
    id        TEXT    COLLATE "C" PRIMARY KEY,
    tool_id   TEXT COLLATE "C"    NOT NULL REFERENCES tools (id),
    user_name TEXT    NOT NULL,
    node      TEXT    NOT NULL,
    status    TEXT    NOT NULL,
    queued_at BIGINT NOT NULL,
    body      TEXT    NOT NULL,
    payload   TEXT,
    stdout    TEXT    NOT NULL,
    stderr    TEXT    NOT NULL,
    checksum  BIGINT NOT NULL
);

CREATE INDEX tool_runs_by_user ON tool_runs (tool_id, user_name, queued_at DESC, id);
CREATE INDEX tool_runs_by_age ON tool_runs (queued_at);
CREATE INDEX tool_runs_unfinished ON tool_runs (node) WHERE status IN ('queued', 'running');

CREATE TABLE tool_sessions (
    tool_id    TEXT COLLATE "C"    NOT NULL REFERENCES tools (id),
    user_name  TEXT    NOT NULL,
    context    TEXT    NOT NULL,
    updated_at BIGINT NOT NULL,
    body       TEXT    NOT NULL,
    checksum   BIGINT NOT NULL,
    PRIMARY KEY (tool_id, user_name, context)
);
