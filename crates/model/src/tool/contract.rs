//! Contract v2: what a tool reports in `result.json`, and the `ui_payload` that a run shows.
//!
//! The types hold only valid values: reading refuses what the contract does not allow, with the place and the
//! reason. Unknown keys are ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error, ser::SerializeMap};
use serde_json::{Map, Value};

/// The only version that is read and written.
pub const CONTRACT_VERSION: u8 = 2;

/// What a tool reports at the end of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ToolResult {
    #[serde(rename = "contract_version")]
    _version: Version,
    pub status: ReportedStatus,
    /// The key is required; its value may be null.
    #[serde(deserialize_with = "Option::deserialize")]
    pub error_summary: Option<String>,
    #[serde(default)]
    pub outputs: Vec<Output>,
    #[serde(default)]
    pub next_actions: Vec<Action>,
    #[serde(default, deserialize_with = "state")]
    pub state: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    pub artifacts: Vec<ReportedArtifact>,
}

/// Why a `result.json` does not follow the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct Violation {
    /// Where: `outputs[2]`, or `result.json` for the whole document.
    pub place: String,
    pub reason: String,
}

impl ToolResult {
    /// Reads a `result.json`. Its size is the caller's to bound.
    pub fn read(bytes: &[u8]) -> Result<Self, Violation> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| Violation { place: DOCUMENT.to_owned(), reason: error.to_string() })?;
        check_objects(&value)?;
        serde_path_to_error::deserialize(&value).map_err(|error| Violation {
            place: place(error.path()),
            reason: error.inner().to_string(),
        })
    }
}

/// How the whole document is called.
const DOCUMENT: &str = "result.json";

/// Refuses lists where the contract has objects: the reader would take their elements for fields.
fn check_objects(result: &Value) -> Result<(), Violation> {
    if !result.is_object() {
        return Err(not_an_object(DOCUMENT.to_owned()));
    }
    for (name, below) in
        [("artifacts", &[][..]), ("outputs", &["columns", "rows"]), ("next_actions", &["fields"])]
    {
        for (index, element) in elements(result, name) {
            let place = format!("{name}[{index}]");
            for name in below {
                check_list(element, name, &place)?;
            }
            if !element.is_object() {
                return Err(not_an_object(place));
            }
        }
    }
    Ok(())
}

fn check_list(parent: &Value, name: &str, place: &str) -> Result<(), Violation> {
    for (index, element) in elements(parent, name) {
        let place = format!("{place}.{name}[{index}]");
        check_field(element, &place)?;
    }
    Ok(())
}

/// Checks that a field is an object, and that its options are.
pub(super) fn check_field(field: &Value, place: &str) -> Result<(), Violation> {
    let options = elements(field, "options").find(|(_, option)| !option.is_object());
    match options {
        Some((index, _)) => Err(not_an_object(format!("{place}.options[{index}]"))),
        None if field.is_object() => Ok(()),
        None => Err(not_an_object(place.to_owned())),
    }
}

fn elements<'a>(parent: &'a Value, name: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    parent.get(name).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn not_an_object(place: String) -> Violation {
    Violation { place, reason: "this is not an object".to_owned() }
}

/// Names the place of an error. A part that the reader does not know is shown as `?` by its path.
fn place(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    match path.trim_end_matches(['?', '.']) {
        "" => DOCUMENT.to_owned(),
        known => known.to_owned(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedStatus {
    Succeeded,
    Failed,
    TimedOut,
}

/// A file that a tool says that it wrote. The server lists `output/` itself and does not rely on this.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReportedArtifact {
    pub path: String,
    pub bytes: u64,
}

/// What a run shows. The state of the session is not part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UiPayload {
    #[serde(rename = "contract_version")]
    version: Version,
    pub outputs: Vec<Output>,
    pub next_actions: Vec<Action>,
}

impl UiPayload {
    pub const fn new(outputs: Vec<Output>, next_actions: Vec<Action>) -> Self {
        Self { version: Version, outputs, next_actions }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Output {
    Notice {
        level: NoticeLevel,
        #[serde(deserialize_with = "trimmed")]
        message: String,
    },
    Markdown {
        #[serde(deserialize_with = "not_empty")]
        markdown: String,
    },
    Table(Table),
    Json {
        #[serde(default, deserialize_with = "title")]
        title: Option<String>,
        value: Value,
    },
    HtmlSandboxed {
        #[serde(deserialize_with = "not_empty")]
        html: String,
    },
    VegaLite {
        spec: Map<String, Value>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutputKind {
    HtmlSandboxed,
    Json,
    Markdown,
    Notice,
    Table,
    VegaLite,
}

impl OutputKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HtmlSandboxed => "html_sandboxed",
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Notice => "notice",
            Self::Table => "table",
            Self::VegaLite => "vega_lite",
        }
    }
}

impl Output {
    pub const fn kind(&self) -> OutputKind {
        match self {
            Self::Notice { .. } => OutputKind::Notice,
            Self::Markdown { .. } => OutputKind::Markdown,
            Self::Table(_) => OutputKind::Table,
            Self::Json { .. } => OutputKind::Json,
            Self::HtmlSandboxed { .. } => OutputKind::HtmlSandboxed,
            Self::VegaLite { .. } => OutputKind::VegaLite,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    Info,
    Warning,
    Error,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    #[serde(default, deserialize_with = "title")]
    pub title: Option<String>,
    #[serde(deserialize_with = "columns")]
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    #[serde(deserialize_with = "trimmed")]
    pub key: String,
    #[serde(deserialize_with = "trimmed")]
    pub label: String,
}

/// The cells of a row by column key, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(pub Vec<(String, Cell)>);

impl Row {
    /// Returns the cells of these columns, in their order.
    pub fn into_cells_of(self, columns: &[Column]) -> Vec<(String, Cell)> {
        let mut cells: BTreeMap<String, Cell> = self.0.into_iter().collect();
        columns.iter().filter_map(|column| cells.remove_entry(&column.key)).collect()
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, cell) in &self.0 {
            map.serialize_entry(key, cell)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|cells| Self(cells.into_iter().collect()))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a cell is a text, a number, a boolean or null")]
pub enum Cell {
    Text(String),
    Boolean(bool),
    Number(serde_json::Number),
    Null,
}

/// A form that the user can fill in to run the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    #[serde(deserialize_with = "trimmed")]
    pub action_id: String,
    #[serde(deserialize_with = "trimmed")]
    pub label: String,
    #[serde(default)]
    kind: Form,
    #[serde(default)]
    pub fields: Vec<Field>,
    #[serde(default)]
    pub prefill: BTreeMap<String, Value>,
}

/// The only kind of action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    #[default]
    Form,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    #[serde(deserialize_with = "trimmed")]
    pub name: String,
    #[serde(deserialize_with = "trimmed")]
    pub label: String,
    #[serde(flatten)]
    pub value: FieldValue,
}

/// The kind of a field, and the options of those that have some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FieldValue {
    String,
    Text,
    Integer,
    Number,
    Boolean,
    Enum {
        #[serde(deserialize_with = "not_none")]
        options: Vec<Choice>,
    },
    MultiEnum {
        #[serde(deserialize_with = "not_none")]
        options: Vec<Choice>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    Boolean,
    Enum,
    Integer,
    MultiEnum,
    Number,
    String,
    Text,
}

impl FieldKind {
    pub const ALL: [Self; 7] = [
        Self::Boolean,
        Self::Enum,
        Self::Integer,
        Self::MultiEnum,
        Self::Number,
        Self::String,
        Self::Text,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Enum => "enum",
            Self::Integer => "integer",
            Self::MultiEnum => "multi_enum",
            Self::Number => "number",
            Self::String => "string",
            Self::Text => "text",
        }
    }
}

impl FieldValue {
    pub const fn kind(&self) -> FieldKind {
        match self {
            Self::String => FieldKind::String,
            Self::Text => FieldKind::Text,
            Self::Integer => FieldKind::Integer,
            Self::Number => FieldKind::Number,
            Self::Boolean => FieldKind::Boolean,
            Self::Enum { .. } => FieldKind::Enum,
            Self::MultiEnum { .. } => FieldKind::MultiEnum,
        }
    }
}

/// One option of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    #[serde(deserialize_with = "trimmed")]
    pub value: String,
    #[serde(deserialize_with = "trimmed")]
    pub label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(CONTRACT_VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            version if version == u64::from(CONTRACT_VERSION) => Ok(Self),
            version => Err(D::Error::custom(format!(
                "contract version {version} is not {CONTRACT_VERSION}"
            ))),
        }
    }
}

pub(super) fn trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(D::Error::custom("a message, key, name, label, id or option is blank"));
    }
    Ok(if trimmed.len() == text.len() { text } else { trimmed.to_owned() })
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("the output is empty")) } else { Ok(text) }
}

pub(super) fn not_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Choice>, D::Error> {
    let options = Vec::deserialize(deserializer)?;
    if options.is_empty() { Err(D::Error::custom("the field has no options")) } else { Ok(options) }
}

/// Reads a title; a blank one is none.
fn title<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let title: Option<String> = Option::deserialize(deserializer)?;
    Ok(title.map(|title| title.trim().to_owned()).filter(|title| !title.is_empty()))
}

fn columns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Column>, D::Error> {
    let columns: Vec<Column> = Vec::deserialize(deserializer)?;
    let mut keys = BTreeSet::new();
    if columns.is_empty() {
        return Err(D::Error::custom("the table has no columns"));
    }
    match columns.iter().find(|column| !keys.insert(&column.key)) {
        Some(column) => Err(D::Error::custom(format!("two columns have the key {:?}", column.key))),
        None => Ok(columns),
    }
}

fn state<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, Value>>, D::Error> {
    let state: Option<BTreeMap<String, Value>> = Option::deserialize(deserializer)?;
    match &state {
        Some(state) if state.keys().any(|key| key.trim().is_empty()) => {
            Err(D::Error::custom("a key is blank"))
        }
        Some(_) | None => Ok(state),
    }
}
