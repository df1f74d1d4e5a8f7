//! Lists of sandboxes, narrowed and ordered as somebody wants them.

use model::{
    ids::Tenant,
    listing::{Order, Query, Row, Selected, Sort},
    sandbox::Sandbox,
};
use store::sandboxes::{Filter, PAGE, Phases};

use super::{SandboxError, Sandboxes};

/// The most that are put into another order than that of the store.
const MOST_SORTED: usize = 10_000;

impl Sandboxes {
    /// Returns the part of a tenant's sandboxes that is asked for. The row says what somebody sees of
    /// each.
    pub async fn select(
        &self,
        tenant: &Tenant,
        phases: Phases,
        query: &Query,
        row: impl Fn(&Sandbox) -> Row<'_>,
    ) -> Result<Selected<Sandbox>, SandboxError> {
        // What the store has in this order need not be read to the end.
        let is_natural = (query.sort, query.order) == (Sort::CreatedAt, Order::Descending);
        let wanted = query.offset.saturating_add(query.limit);
        let cursor = |place: &model::listing::Place| format!("{}.{}", place.number, place.id);
        let mut after = match &query.after {
            Some(place) if is_natural => Some(cursor(place).parse()?),
            Some(_) | None => None,
        };
        let with_values = query.labels.iter().filter_map(|label| {
            label.value.as_ref().map(|value| (label.name.clone(), value.clone()))
        });
        let labels: std::collections::BTreeMap<_, _> = with_values.collect();
        let mut found = Vec::new();
        loop {
            let filter = Filter {
                tenant: tenant.clone(),
                labels: labels.clone(),
                phases: phases.clone(),
                after: after.take(),
                limit: PAGE,
            };
            let page = self.list(filter).await?;
            found.extend(page.sandboxes.into_iter().filter(|it| query.matches(&row(it))));
            after = page.next;
            if after.is_none() || (is_natural && found.len() > wanted) {
                return Ok(query.select(found, row));
            }
            if found.len() > MOST_SORTED {
                let message = "more than 10000 sandboxes match: narrow the list, or have it in the \
                               order of created_at";
                return Err(SandboxError::Invalid(message.to_owned()));
            }
        }
    }
}
