//! How much of a tool's result is kept and shown.

use crate::tool::contract::{FieldKind, OutputKind};

/// The limits of a tool. Sizes are bytes of compact JSON, or of UTF-8 for texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UiPolicy {
    pub state_bytes: usize,
    pub payload_bytes: usize,
    pub outputs: usize,
    pub output_kinds: &'static [OutputKind],
    pub notice_bytes: usize,
    pub markdown_bytes: usize,
    pub html_bytes: usize,
    pub table: TableLimits,
    pub json: JsonLimits,
    pub actions: usize,
    pub fields_per_action: usize,
    pub field_kinds: &'static [FieldKind],
    pub enum_options: usize,
    pub multi_enum_options: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    pub rows: usize,
    pub columns: usize,
    pub cell_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    pub bytes: usize,
    /// Containers at this depth are emptied; the value itself is at depth 0.
    pub depth: usize,
    pub keys: usize,
    pub elements: usize,
}

const KIB: usize = 1024;

impl UiPolicy {
    /// For tools that users write.
    pub const DEFAULT: Self = Self {
        state_bytes: 64 * KIB,
        payload_bytes: 256 * KIB,
        outputs: 50,
        output_kinds: &[
            OutputKind::Notice,
            OutputKind::Markdown,
            OutputKind::Table,
            OutputKind::Json,
            OutputKind::HtmlSandboxed,
        ],
        notice_bytes: 8 * KIB,
        markdown_bytes: 64 * KIB,
        html_bytes: 96 * KIB,
        table: TableLimits { rows: 750, columns: 40, cell_bytes: 512 },
        json: JsonLimits { bytes: 96 * KIB, depth: 10, keys: 1000, elements: 2000 },
        actions: 10,
        fields_per_action: 25,
        field_kinds: &FieldKind::ALL,
        enum_options: 100,
        multi_enum_options: 200,
    };

    /// For tools that the operator vouches for.
    pub const CURATED: Self = Self {
        state_bytes: 256 * KIB,
        payload_bytes: 512 * KIB,
        outputs: 150,
        output_kinds: &[
            OutputKind::Notice,
            OutputKind::Markdown,
            OutputKind::Table,
            OutputKind::Json,
            OutputKind::HtmlSandboxed,
            OutputKind::VegaLite,
        ],
        notice_bytes: 8 * KIB,
        markdown_bytes: 256 * KIB,
        html_bytes: 192 * KIB,
        table: TableLimits { rows: 2500, columns: 80, cell_bytes: 1024 },
        json: JsonLimits { bytes: 256 * KIB, depth: 20, keys: 5000, elements: 10_000 },
        actions: 25,
        fields_per_action: 60,
        field_kinds: &FieldKind::ALL,
        enum_options: 300,
        multi_enum_options: 600,
    };
}
