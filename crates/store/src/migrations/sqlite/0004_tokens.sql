-- Times are milliseconds since 1970. A sandbox whose key was never changed has no row here.
CREATE TABLE key_epochs (
    sandbox_id TEXT    PRIMARY KEY,
    epoch      INTEGER NOT NULL CHECK (epoch > 0)
) STRICT, WITHOUT ROWID;

-- Tokens that end before their time, until they would have ended anyway.
CREATE TABLE token_revocations (
    sandbox_id       TEXT    NOT NULL,
    -- 'token': the subject is its id; 'human', 'agent': the subject is that actor's id.
    kind             TEXT    NOT NULL CHECK (kind IN ('token', 'human', 'agent')),
    subject          TEXT    NOT NULL,
    ends_at          INTEGER NOT NULL,
    keep_until       INTEGER NOT NULL,
    -- What streams of a token go on with.
    successor        TEXT,
    successor_ends   INTEGER,
    PRIMARY KEY (sandbox_id, kind, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX token_revocations_by_end ON token_revocations (keep_until);

-- Tokens that say nothing by themselves. Only the hash of their text is kept.
CREATE TABLE opaque_tokens (
    hash       BLOB    PRIMARY KEY CHECK (length(hash) = 32),
    sandbox_id TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    -- As the payload of a signed token would be.
    claims     TEXT    NOT NULL,
    keep_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX opaque_tokens_by_end ON opaque_tokens (keep_until);
CREATE INDEX opaque_tokens_by_sandbox ON opaque_tokens (sandbox_id);
