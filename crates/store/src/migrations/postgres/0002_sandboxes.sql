-- The collation makes ids sort as bytes, whatever the locale of the database is.
-- Columns hold what is asked for; `life`, `spec` and `body` hold the rest, as JSON. A checksum covers
-- its row. Times are milliseconds since 1970.
CREATE TABLE sandboxes (
    id           TEXT    COLLATE "C" PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    alias        TEXT,
    node         TEXT    NOT NULL,
    -- 'purged' is a row that is kept only so that its id and alias are never given again.
    phase        TEXT    NOT NULL,
    created_at   BIGINT  NOT NULL,
    phase_since  BIGINT  NOT NULL,
    -- The last event, and the first that is still kept.
    sequence     BIGINT  NOT NULL,
    earliest     BIGINT  NOT NULL,
    life         TEXT    NOT NULL,
    checksum     BIGINT  NOT NULL,
    UNIQUE (tenant, alias)
) WITH (fillfactor = 70);

CREATE INDEX sandboxes_by_age ON sandboxes (tenant, created_at DESC, id);
CREATE INDEX sandboxes_by_node ON sandboxes (node) WHERE phase NOT IN ('terminated', 'purged');
CREATE INDEX sandboxes_by_end ON sandboxes (phase_since) WHERE phase = 'terminated';

-- Apart from the row that every event rewrites.
CREATE TABLE sandbox_specs (
    sandbox_id TEXT    COLLATE "C" PRIMARY KEY REFERENCES sandboxes (id),
    spec       TEXT    NOT NULL,
    checksum   BIGINT  NOT NULL
);

CREATE TABLE sandbox_labels (
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (sandbox_id, name)
);

CREATE INDEX sandbox_labels_by_value ON sandbox_labels (name, value);

CREATE TABLE events (
    sandbox_id TEXT    COLLATE "C" NOT NULL,
    sequence   BIGINT  NOT NULL,
    body       TEXT    NOT NULL,
    checksum   BIGINT  NOT NULL,
    PRIMARY KEY (sandbox_id, sequence)
);

CREATE TABLE execs (
    tenant        TEXT    NOT NULL,
    id            TEXT    COLLATE "C" NOT NULL,
    sandbox_id    TEXT    COLLATE "C" NOT NULL,
    -- 'running', 'ended', or 'purged': kept only so that the id is never given again.
    state         TEXT    NOT NULL,
    life          TEXT    NOT NULL,
    checksum      BIGINT  NOT NULL,
    spec          TEXT    NOT NULL,
    spec_checksum BIGINT  NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX execs_by_sandbox ON execs (sandbox_id);
CREATE INDEX execs_that_run ON execs (tenant, sandbox_id) WHERE state = 'running';
