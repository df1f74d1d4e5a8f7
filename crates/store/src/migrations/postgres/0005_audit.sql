-- The audit log. `body` is the record as one line of JSON without its hash, and has the hash of the
-- record before it. Rows are only ever added.
CREATE TABLE audit (
    sequence BIGINT  PRIMARY KEY,
    body     TEXT    NOT NULL,
    hash     BYTEA   NOT NULL CHECK (length(hash) = 32)
);

CREATE FUNCTION refuse_to_change_the_audit_log() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$;

CREATE TRIGGER audit_is_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_the_audit_log();
