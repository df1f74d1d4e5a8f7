//! Languages that the operator adds: `[languages.NAME]`.

use std::collections::BTreeMap;

use engine::languages::{
    Languages,
    added::{AddError, Added},
};
use model::units::ByteSize;
use serde::{Deserialize, Serialize};

use super::units;

/// The tables by their names.
pub type AddedLanguages = BTreeMap<String, AddedLanguage>;

/// How a language's runtime is started. Nothing is needed of it but that it can be given the path
/// of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddedLanguage {
    /// The absolute path of the program, and its arguments; `{file}` stands for the path of the
    /// code.
    pub command: Vec<String>,
    /// The name of the file that the code is written to.
    pub file: String,
    /// The least memory that the runtime can start with.
    #[serde(with = "units::size")]
    pub min_memory: ByteSize,
    /// How many slots wait for requests.
    pub pool_size: usize,
    /// Variables that every execution has, besides those of all languages.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Command and file have no sensible default: these are refused, which names the key.
impl Default for AddedLanguage {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            file: String::new(),
            min_memory: ByteSize::mib(16),
            pool_size: 2,
            env: BTreeMap::new(),
        }
    }
}

/// Returns the languages of this machine and those that were added.
pub(super) fn installed_and(added: &AddedLanguages) -> Result<Languages, AddError> {
    added.iter().try_fold(Languages::installed(), |languages, (name, language)| {
        let AddedLanguage { command, file, min_memory, pool_size, env } = language.clone();
        languages.with(Added {
            name: name.clone(),
            command,
            file,
            env: env.into_iter().collect(),
            min_memory,
            pool_size,
        })
    })
}
