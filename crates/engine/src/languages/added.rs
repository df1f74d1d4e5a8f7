//! Languages that the operator adds to the built-in ones. Their runtimes need know nothing of us:
//! everything else of a slot is made ahead, and the runtime starts with the request.

use model::units::ByteSize;

use super::{FILE, Language, Warm, table};

/// A language as the operator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    pub name: String,
    /// The absolute path of the runtime's program, and its arguments; `{file}` stands for the
    /// path of the code.
    pub command: Vec<String>,
    /// The name of the file that the code is written to.
    pub file: String,
    /// Variables that every execution has, besides those of all languages.
    pub env: Vec<(String, String)>,
    pub min_memory: ByteSize,
    pub pool_size: usize,
}

/// A language cannot be added. The text names the key of the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    #[error("languages.{name} is built in and cannot be replaced; choose another name")]
    BuiltIn { name: String },
    #[error("languages.{name}: a name is 1 to 32 of a-z, 0-9, _ and -, and starts with a letter")]
    Name { name: String },
    #[error("languages.{name}.{key} {problem}")]
    Value { name: String, key: &'static str, problem: &'static str },
}

/// The folders of the machine that a slot sees, and that a runtime can be in.
const FOLDERS: [&str; 3] = ["/usr/", "/bin/", "/sbin/"];

const MAX_NAME: usize = 32;
const MAX_FILE: usize = 64;
/// The kernel ends every program that has less.
const MIN_MEMORY: ByteSize = ByteSize::mib(1);
/// A waiting slot costs memory and a user id.
const MAX_POOL: usize = 64;

impl Added {
    /// Turns the description into a row of the table, or names the first key that is wrong.
    pub(super) fn into_language(
        self,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Language, AddError> {
        self.check_name()?;
        let checks = [
            ("command", self.command_problem(is_there)),
            ("file", self.file_problem()),
            ("env", self.env_problem()),
            ("min_memory", (self.min_memory < MIN_MEMORY).then_some("must be at least 1MiB")),
            ("pool_size", (self.pool_size > MAX_POOL).then_some("must be at most 64")),
        ];
        if let Some((key, problem)) =
            checks.into_iter().find_map(|(key, problem)| Some((key, problem?)))
        {
            return Err(AddError::Value { name: self.name, key, problem });
        }
        Ok(Language {
            name: self.name,
            min_memory: self.min_memory,
            command: self.command,
            file: self.file,
            env: self.env,
            warm: Warm::Wait,
            pool_size: self.pool_size,
            slot_memory: ByteSize::mib(1),
            zygote_memory: ByteSize::default(),
            start_time_variables: Vec::new(),
            files: Vec::new(),
        })
    }

    /// A built-in language keeps its name also where its runtime is not installed: what a name
    /// means must not depend on the machine.
    fn check_name(&self) -> Result<(), AddError> {
        let name = self.name.clone();
        let is_of =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts_well || name.len() > MAX_NAME || !name.chars().all(is_of) {
            Err(AddError::Name { name })
        } else if table::NAMES.contains(&name.as_str()) {
            Err(AddError::BuiltIn { name })
        } else {
            Ok(())
        }
    }

    fn command_problem(&self, is_there: impl Fn(&str) -> bool) -> Option<&'static str> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Some("must have a program, by its absolute path, and its arguments");
        };
        let is_seen = FOLDERS.iter().any(|folder| program.starts_with(folder));
        if !is_seen || program.split('/').any(|part| part == "..") {
            Some(
                "must start with the path of a program below /usr, /bin or /sbin: slots see no other",
            )
        } else if !is_there(program) {
            Some("must start with a program that is there and that everybody may execute")
        } else if !arguments.iter().any(|argument| argument.contains(FILE)) {
            Some("must have an argument with {file}, which stands for the path of the code")
        } else if self.command.iter().any(|part| part.contains('\0')) {
            Some("must not contain NUL")
        } else {
            None
        }
    }

    fn file_problem(&self) -> Option<&'static str> {
        let is_name = !matches!(self.file.as_str(), "" | "." | "..")
            && self.file.len() <= MAX_FILE
            && !self.file.contains(['/', '\0']);
        (!is_name).then_some("must be the name of a file, such as \"main.pl\", of at most 64 bytes")
    }

    fn env_problem(&self) -> Option<&'static str> {
        let is_variable = |(name, value): &(String, String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        (!self.env.iter().all(is_variable))
            .then_some("must have names that are not empty and have no =, and nothing with NUL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perl() -> Added {
        Added {
            name: "perl".into(),
            command: vec!["/usr/bin/perl".into(), "-w".into(), "{file}".into()],
            file: "main.pl".into(),
            env: vec![("PERL_HASH_SEED".into(), "0".into())],
            min_memory: ByteSize::mib(16),
            pool_size: 2,
        }
    }

    fn command(parts: &[&str]) -> Added {
        Added { command: parts.iter().map(ToString::to_string).collect(), ..perl() }
    }

    fn is_there(program: &str) -> bool {
        program != "/usr/bin/no-such-program"
    }

    #[test]
    fn a_good_description_becomes_a_row_that_waits_before_its_runtime_starts() {
        let language = perl().into_language(is_there).unwrap();
        assert_eq!((language.warm, language.pool_size), (Warm::Wait, 2));
        assert_eq!(language.command, ["/usr/bin/perl", "-w", "{file}"]);
    }

    #[test]
    fn a_bad_description_is_refused_by_its_key() {
        let named = |name: &str| Added { name: name.into(), ..perl() };
        let filed = |file: &str| Added { file: file.into(), ..perl() };
        let variable =
            |name: &str, value: &str| Added { env: vec![(name.into(), value.into())], ..perl() };
        let rows = [
            (named("python"), "languages.python is built in"),
            (named("elixir"), "languages.elixir is built in"),
            (named(""), "languages.: a name"),
            (named("Perl"), "languages.Perl: a name"),
            (named("5perl"), "languages.5perl: a name"),
            (named(&"p".repeat(33)), "languages.ppp"),
            (command(&[]), "languages.perl.command"),
            (command(&["perl", "{file}"]), "languages.perl.command"),
            (command(&["/opt/perl", "{file}"]), "languages.perl.command"),
            (command(&["/usr/../opt/perl", "{file}"]), "languages.perl.command"),
            (command(&["/usr/bin/no-such-program", "{file}"]), "languages.perl.command"),
            (command(&["/usr/bin/perl"]), "languages.perl.command"),
            (command(&["/usr/bin/{file}"]), "languages.perl.command"),
            (command(&["/usr/bin/perl", "a\0", "{file}"]), "languages.perl.command"),
            (filed(""), "languages.perl.file"),
            (filed(".."), "languages.perl.file"),
            (filed("a/b"), "languages.perl.file"),
            (filed(&"f".repeat(65)), "languages.perl.file"),
            (variable("", "x"), "languages.perl.env"),
            (variable("A=B", "x"), "languages.perl.env"),
            (variable("A", "\0"), "languages.perl.env"),
            (Added { min_memory: ByteSize::bytes(0), ..perl() }, "languages.perl.min_memory"),
            (Added { pool_size: 65, ..perl() }, "languages.perl.pool_size"),
        ];
        for (added, start) in rows {
            let text = added.clone().into_language(is_there).unwrap_err().to_string();
            assert!(text.starts_with(start), "{added:?}: {text}");
        }
    }
}
