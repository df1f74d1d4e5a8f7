//! What is asked of the store about snapshots, and what it answers.

use model::{ids::Tag, snapshot::Snapshot};

use crate::{
    StoreError,
    row::{check, checksum, decode, encode},
};

/// A snapshot and the tags that lead to it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    pub snapshot: Snapshot,
    pub tags: Vec<Tag>,
}

/// A snapshot to be kept.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    pub snapshot: Snapshot,
    pub tag: Tag,
    pub taking: Taking,
    /// How many its tenant may have.
    pub most: u32,
}

/// What becomes of a tag that leads to another snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It is moved to the new one.
    Moving,
    /// It stays, and the new one is refused.
    Free,
}

/// A row of `snapshots`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) state: String,
    pub(crate) created_at: i64,
    pub(crate) body: String,
    pub(crate) checksum: i64,
}

/// The columns of [`Row`], in its order.
pub(crate) const COLUMNS: &str = "id, tenant, name, node, state, created_at, body, checksum";

/// Which one is meant by a name alone: the one that is tagged `latest`, else the newest that is ready
/// and has no tag. The name is the second parameter, the tag the third.
pub(crate) fn by_name(parameters: [&str; 3]) -> String {
    let [tenant, name, tag] = parameters;
    format!(
        "s.tenant = {tenant} AND s.name = {name} AND s.id = coalesce(
             (SELECT t.snapshot_id FROM snapshot_tags t
              WHERE t.tenant = {tenant} AND t.name = {name} AND t.tag = {tag}),
             (SELECT n.id FROM snapshots n
              WHERE n.tenant = {tenant} AND n.name = {name} AND n.state = 'ready'
              AND NOT EXISTS (SELECT 1 FROM snapshot_tags t WHERE t.snapshot_id = n.id)
              ORDER BY n.created_at DESC, n.id LIMIT 1))"
    )
}

/// Which one has this tag. The parameters are as above.
pub(crate) fn by_tag(parameters: [&str; 3]) -> String {
    let [tenant, name, tag] = parameters;
    format!(
        "s.id = (SELECT t.snapshot_id FROM snapshot_tags t
                 WHERE t.tenant = {tenant} AND t.name = {name} AND t.tag = {tag})"
    )
}

impl Row {
    pub(crate) fn new(snapshot: &Snapshot) -> Result<Self, StoreError> {
        let mut row = Self {
            id: snapshot.id.to_string(),
            tenant: snapshot.tenant.to_string(),
            name: snapshot.name.to_string(),
            node: snapshot.node.to_string(),
            state: snapshot.state.name().to_owned(),
            created_at: snapshot.created_at.as_millis(),
            body: encode("a snapshot", snapshot)?,
            checksum: 0,
        };
        row.checksum = row.sum();
        Ok(row)
    }

    fn sum(&self) -> i64 {
        checksum(&[
            self.id.as_bytes(),
            self.tenant.as_bytes(),
            self.name.as_bytes(),
            self.node.as_bytes(),
            self.state.as_bytes(),
            &self.created_at.to_be_bytes(),
            self.body.as_bytes(),
        ])
    }

    pub(crate) fn read(&self) -> Result<Snapshot, StoreError> {
        check(self.checksum, self.sum(), || format!("the row of snapshot {}", self.id))?;
        decode("snapshots", &self.body)
    }

    /// Reads it with its tags, which have a blank between them.
    pub(crate) fn with_tags(&self, tags: &str) -> Result<Tagged, StoreError> {
        let not_understood = |_not_a_tag| StoreError::Row { table: "snapshot_tags" };
        let tags = tags.split(' ').filter(|tag| !tag.is_empty()).map(str::parse);
        let tags = tags.collect::<Result<_, _>>().map_err(not_understood)?;
        Ok(Tagged { snapshot: self.read()?, tags })
    }
}

/// Refuses one more than a tenant may have.
pub(crate) fn admit(count: i64, new: &NewSnapshot) -> Result<(), StoreError> {
    if count < i64::from(new.most) {
        return Ok(());
    }
    Err(StoreError::TooMany { what: "snapshots", most: new.most })
}
