-- Images under names of a tenant's own. Columns hold what is asked for; `body` holds all, as JSON. The
-- checksum covers the row. Times are milliseconds since 1970.
CREATE TABLE snapshots (
    id         TEXT    COLLATE "C" PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    node       TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    body       TEXT    NOT NULL,
    checksum   BIGINT  NOT NULL
);

CREATE INDEX snapshots_by_name ON snapshots (tenant, name, created_at DESC, id);
CREATE INDEX snapshots_to_build ON snapshots (node) WHERE state = 'building';

CREATE TABLE snapshot_tags (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    tag         TEXT NOT NULL,
    snapshot_id TEXT COLLATE "C" NOT NULL REFERENCES snapshots (id),
    PRIMARY KEY (tenant, name, tag)
);

CREATE INDEX snapshot_tags_by_snapshot ON snapshot_tags (snapshot_id);

-- What sandboxes were called before: nobody else is ever called so.
CREATE TABLE former_aliases (
    tenant     TEXT NOT NULL,
    alias      TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    PRIMARY KEY (tenant, alias)
);
