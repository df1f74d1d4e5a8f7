//! Lists that callers narrow, order and take page by page.

use std::{cmp::Ordering, collections::BTreeMap, fmt, str::FromStr};

use crate::units::Timestamp;

/// What a list shows of a thing, as far as it is narrowed and ordered by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub status: &'a str,
    pub created_at: Timestamp,
    pub stopped_at: Option<Timestamp>,
    /// In seconds.
    pub idle: u64,
    pub keep_stopped: u64,
    pub labels: Option<&'a BTreeMap<String, String>>,
    pub created_by: Option<&'a str>,
}

/// Which ones, in which order, from where on, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// In small letters.
    pub name_contains: Option<String>,
    pub status: Option<String>,
    /// Every one of them must be there.
    pub labels: Vec<Label>,
    pub created_by: Option<String>,
    pub sort: Sort,
    pub order: Order,
    pub after: Option<Place>,
    /// Skipped before the first that is shown.
    pub offset: usize,
    pub limit: usize,
}

/// A label that must be there, with any value or with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    CreatedAt,
    Name,
    Status,
    StoppedAt,
    Idle,
    KeepStopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    Ascending,
    #[default]
    Descending,
}

/// A place in an ordered list, which stays what it is when things come and go. Callers hand it back and
/// look no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub number: i64,
    pub text: String,
    pub id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a cursor of a list")]
pub struct NoPlace;

/// The part of a list that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected<T> {
    pub items: Vec<T>,
    /// Where to go on; nothing at the end.
    pub next: Option<Place>,
}

impl Query {
    /// Tells whether something is to be shown at all.
    pub fn matches(&self, row: &Row<'_>) -> bool {
        let has = |label: &Label| {
            let found = row.labels.and_then(|labels| labels.get(&label.name));
            found.is_some_and(|found| label.value.as_ref().is_none_or(|value| value == found))
        };
        let part = self.name_contains.as_ref();
        part.is_none_or(|part| row.name.to_lowercase().contains(part.as_str()))
            && self.status.as_deref().is_none_or(|status| status == row.status)
            && self.created_by.as_deref().is_none_or(|by| Some(by) == row.created_by)
            && self.labels.iter().all(has)
    }

    /// Returns where something stands.
    pub fn place(&self, row: &Row<'_>) -> Place {
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        let (number, text) = match self.sort {
            Sort::CreatedAt => (row.created_at.as_millis(), ""),
            Sort::StoppedAt => (row.stopped_at.map_or(0, Timestamp::as_millis), ""),
            Sort::Idle => (seconds(row.idle), ""),
            Sort::KeepStopped => (seconds(row.keep_stopped), ""),
            Sort::Name => (0, row.name),
            Sort::Status => (0, row.status),
        };
        Place { number, text: text.to_owned(), id: row.id.to_owned() }
    }

    /// Compares two places. What is alike is ordered by its id, in either direction the same.
    fn compare(&self, one: &Place, other: &Place) -> Ordering {
        let key = (one.number, &one.text).cmp(&(other.number, &other.text));
        let key = match self.order {
            Order::Ascending => key,
            Order::Descending => key.reverse(),
        };
        key.then_with(|| one.id.cmp(&other.id))
    }

    /// Picks what is asked for from all there is.
    pub fn select<T>(&self, all: Vec<T>, row: impl Fn(&T) -> Row<'_>) -> Selected<T> {
        let mut placed: Vec<(Place, T)> = all
            .into_iter()
            .filter(|it| self.matches(&row(it)))
            .map(|it| (self.place(&row(&it)), it))
            .collect();
        placed.sort_by(|(one, _), (other, _)| self.compare(one, other));
        let is_after = |place: &Place| {
            self.after.as_ref().is_none_or(|after| self.compare(place, after) == Ordering::Greater)
        };
        let mut rest = placed.into_iter().filter(|(place, _)| is_after(place)).skip(self.offset);
        let (places, items): (Vec<Place>, Vec<T>) = rest.by_ref().take(self.limit).unzip();
        let next = rest.next().and_then(|_more| places.last().cloned());
        Selected { items, next }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.number, self.id)?;
        self.text.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(cursor: &str) -> Result<Self, NoPlace> {
        let mut parts = cursor.split('.');
        let (Some(number), Some(id), Some(hex), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NoPlace);
        };
        let digits = hex.as_bytes().chunks(2).map(|pair| {
            let pair = str::from_utf8(pair).ok()?;
            let is_hex = pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| is_hex)
        });
        let text = digits.collect::<Option<Vec<u8>>>().ok_or(NoPlace)?;
        Ok(Self {
            number: number.parse().map_err(|_not_a_number| NoPlace)?,
            text: String::from_utf8(text).map_err(|_not_text| NoPlace)?,
            id: id.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Query = Query {
        name_contains: None,
        status: None,
        labels: Vec::new(),
        created_by: None,
        sort: Sort::CreatedAt,
        order: Order::Descending,
        after: None,
        offset: 0,
        limit: 100,
    };

    #[derive(Clone, Debug, PartialEq)]
    struct Thing(String, String, i64, BTreeMap<String, String>);

    fn row(thing: &Thing) -> Row<'_> {
        let Thing(id, name, created_at, labels) = thing;
        let created_at = Timestamp::from_millis(*created_at);
        let status = if created_at.as_millis() > 2 { "ready" } else { "stopped" };
        Row { id, name, created_at, status, labels: Some(labels), ..Row::default() }
    }

    fn things() -> Vec<Thing> {
        let thing = |id: &str, name: &str, at, label: &str| {
            let labels = BTreeMap::from([("team".to_owned(), label.to_owned())]);
            Thing(id.to_owned(), name.to_owned(), at, labels)
        };
        vec![thing("1", "Ada", 1, "a"), thing("2", "bob", 3, "b"), thing("3", "adam", 3, "a")]
    }

    fn ids(query: &Query) -> String {
        query.select(things(), row).items.iter().map(|thing| thing.0.as_str()).collect()
    }

    #[test]
    fn a_list_is_narrowed_and_ordered_as_asked() {
        let label = |value: Option<&str>| {
            let value = value.map(str::to_owned);
            Query { labels: vec![Label { name: "team".to_owned(), value }], ..ALL }
        };
        let name = Query { name_contains: Some("ad".to_owned()), ..ALL };
        let by_name = Query { sort: Sort::Name, order: Order::Ascending, ..ALL };
        let rows = [
            (ALL, "231"),
            (Query { order: Order::Ascending, ..ALL }, "123"),
            (by_name, "132"),
            (Query { sort: Sort::Status, ..ALL }, "123"),
            (name, "31"),
            (label(None), "231"),
            (label(Some("a")), "31"),
            (label(Some("c")), ""),
            (Query { status: Some("stopped".to_owned()), ..ALL }, "1"),
            (Query { created_by: Some("me".to_owned()), ..ALL }, ""),
            (Query { offset: 1, limit: 1, ..ALL }, "3"),
            (Query { offset: 9, ..ALL }, ""),
        ];
        for (query, expected) in rows {
            assert_eq!(ids(&query), expected, "{query:?}");
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for bad in ["", ".", "..", "x.a.", "1.a.0", "1.a.zz", "1.a.ff", "1.a.61.", "1.a.+1"] {
            assert_eq!(bad.parse::<Place>(), Err(NoPlace), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn page_by_page_everything_is_shown_once(
            numbers in proptest::collection::vec((0..4_i64, "[a-c]{1,2}"), 0..20),
            limit in 1..5_usize,
            sort in proptest::sample::select(vec![Sort::CreatedAt, Sort::Name, Sort::Status]),
            ascending: bool,
        ) {
            let all: Vec<Thing> = numbers.into_iter().enumerate().map(|(id, (at, name))| {
                Thing(format!("id{id:02}"), name, at, BTreeMap::new())
            }).collect();
            let order = if ascending { Order::Ascending } else { Order::Descending };
            let whole = Query { sort, order, ..ALL }.select(all.clone(), row).items;
            let (mut after, mut shown) = (None, Vec::new());
            loop {
                let page = Query { sort, order, after, limit, ..ALL }.select(all.clone(), row);
                shown.extend(page.items);
                // As a caller hands it back.
                after = page.next.map(|next| next.to_string().parse().unwrap());
                if after.is_none() {
                    break;
                }
            }
            prop_assert_eq!(shown, whole);
        }
    }
}
