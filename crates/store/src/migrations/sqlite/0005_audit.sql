-- The audit log. `body` is the record as one line of JSON without its hash, and has the hash of the
-- record before it. Rows are only ever added.
CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY,
    body     TEXT    NOT NULL,
    hash     BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;

CREATE TRIGGER audit_is_not_shortened BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
