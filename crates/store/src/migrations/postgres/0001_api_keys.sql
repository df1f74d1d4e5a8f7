CREATE TABLE api_keys (
    id          TEXT    PRIMARY KEY,
    hash        BYTEA   NOT NULL UNIQUE CHECK (length(hash) = 32),
    name        TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    role        TEXT    NOT NULL CHECK (role IN ('admin', 'broker', 'user')),
    actor_type  TEXT    NOT NULL CHECK (actor_type IN ('human', 'agent')),
    actor_id    TEXT    NOT NULL,
    last_four   TEXT    NOT NULL,
    -- Milliseconds since 1970.
    created_at  BIGINT  NOT NULL,
    revoked_at  BIGINT
);
