//! Sandboxes that get other names and specs, in SQL.

use std::collections::HashMap;

use model::{adjustment::Adjusted, ids::SandboxId};

use super::session::Session;
use crate::{
    StoreError,
    row::{Head, sandbox_spec},
};

/// What is to be written, by columns.
#[derive(Default)]
pub(super) struct Adjustments {
    ids: Vec<String>,
    specs: Vec<String>,
    checksums: Vec<i64>,
    aliases: Vec<Option<String>>,
    former: (Vec<String>, Vec<String>, Vec<String>),
}

impl Adjustments {
    /// Adds one, and returns the row of the sandbox under its name; nothing if that is another's, or was
    /// once.
    pub(super) fn add(
        &mut self,
        head: &Head,
        adjusted: &Adjusted,
        taken: &mut HashMap<(String, String), String>,
    ) -> Result<Option<Head>, StoreError> {
        let renamed = head.clone().with_alias(adjusted.alias.as_ref());
        if let Some(alias) = renamed.alias.as_ref().filter(|_| renamed.alias != head.alias) {
            let owner = taken.get(&(head.tenant.clone(), alias.clone()));
            if owner.is_some_and(|owner| *owner != head.id) {
                return Ok(None);
            }
            taken.insert((head.tenant.clone(), alias.clone()), head.id.clone());
            if let Some(former) = &head.alias {
                taken.insert((head.tenant.clone(), former.clone()), head.id.clone());
                self.former.0.push(head.tenant.clone());
                self.former.1.push(former.clone());
                self.former.2.push(head.id.clone());
            }
        }
        let not_understood = |_not_an_id| StoreError::Row { table: "sandboxes" };
        let id: SandboxId = head.id.parse().map_err(not_understood)?;
        let (spec, checksum) = sandbox_spec(&id, &adjusted.spec)?;
        self.ids.push(head.id.clone());
        self.specs.push(spec);
        self.checksums.push(checksum);
        self.aliases.push(renamed.alias.clone());
        Ok(Some(renamed))
    }

    pub(super) async fn write(&self, session: &Session) -> Result<(), StoreError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        // One after the other: of two of one sandbox the later counts.
        let columns = self.ids.iter().zip(&self.specs).zip(&self.checksums).zip(&self.aliases);
        for (((id, spec), checksum), alias) in columns {
            let sql = "UPDATE sandbox_specs SET spec = $1, checksum = $2 WHERE sandbox_id = $3";
            session.execute(sql, &[spec, checksum, id]).await?;
            let sql = "UPDATE sandboxes SET alias = $1 WHERE id = $2";
            session.execute(sql, &[alias, id]).await?;
        }
        let sql = "INSERT INTO former_aliases (tenant, alias, sandbox_id)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
                   ON CONFLICT DO NOTHING";
        session.execute(sql, &[&self.former.0, &self.former.1, &self.former.2]).await?;
        Ok(())
    }
}
