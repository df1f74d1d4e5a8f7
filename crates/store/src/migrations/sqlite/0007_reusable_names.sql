-- A name is free again once its sandbox is deleted. The deleted sandbox keeps showing it.
ALTER TABLE sandboxes ADD COLUMN ended_alias TEXT;
UPDATE sandboxes SET ended_alias = alias, alias = NULL WHERE phase IN ('terminated', 'purged');
CREATE INDEX sandboxes_by_ended_alias ON sandboxes (tenant, ended_alias)
    WHERE ended_alias IS NOT NULL;
DELETE FROM former_aliases WHERE sandbox_id IN
    (SELECT id FROM sandboxes WHERE phase IN ('terminated', 'purged'));

-- The variables of commands that run. They are removed when the command ends.
CREATE TABLE exec_env (
    tenant   TEXT    NOT NULL,
    exec_id  TEXT    NOT NULL,
    env      TEXT    NOT NULL,
    checksum INTEGER  NOT NULL,
    PRIMARY KEY (tenant, exec_id)
) STRICT, WITHOUT ROWID;

-- An empty spec with the checksum 0 is one that was erased.
UPDATE execs SET spec = '', spec_checksum = 0 WHERE state <> 'purged' AND sandbox_id IN
    (SELECT id FROM sandboxes WHERE phase = 'terminated');
