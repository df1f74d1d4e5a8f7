//! From several sources to one configuration.

use std::{
    io,
    path::{Path, PathBuf},
};

use engine::languages::added::AddError;
use toml::{Table, Value};

use super::Config;

/// What every environment variable of ours starts with.
const PREFIX: &str = "RINGFENCE_";
/// Variables of the client commands, which are no settings of the server.
const NOT_SETTINGS: [&str; 4] =
    ["RINGFENCE_API_KEY", "RINGFENCE_CA_CERT", "RINGFENCE_URL", "RINGFENCE_CONFIG"];

/// Where settings come from, weakest first.
#[derive(Debug, Default)]
pub struct Sources {
    /// Values that depend on the machine or the user, such as the data directory.
    pub defaults: Table,
    pub file: Option<PathBuf>,
    /// The environment: only names with our prefix are looked at. Two underscores stand for a
    /// dot: `RINGFENCE_EXECUTIONS__DISCONNECT_GRACE`.
    pub environment: Vec<(String, String)>,
    pub flags: Table,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("the configuration {path} is not understood")]
    File { path: PathBuf, source: toml::de::Error },
    #[error("{name} is no setting; ringfence serve --print-config shows them all")]
    Variable { name: String },
    #[error("a setting is not understood")]
    Value(#[source] toml::de::Error),
    #[error("refusing unsafe settings: {problem}")]
    Unsafe { problem: String },
    #[error("a language cannot be added")]
    Language(#[from] AddError),
    #[error("cannot write the configuration as TOML")]
    Print(#[source] toml::ser::Error),
    #[error("cannot read the configuration back")]
    Reread(#[source] toml::de::Error),
}

/// Puts all sources together, and refuses what is unsafe.
pub fn load(sources: Sources) -> Result<Config, ConfigError> {
    let mut settings = sources.defaults;
    if let Some(path) = &sources.file {
        merge(&mut settings, read(path)?);
    }
    for (name, text) in sources.environment {
        if name.starts_with(PREFIX) && !NOT_SETTINGS.contains(&name.as_str()) {
            merge(&mut settings, variable(&name, &text)?);
        }
    }
    merge(&mut settings, sources.flags);
    let config: Config = settings.try_into().map_err(ConfigError::Value)?;
    config.check()?;
    Ok(config)
}

/// Reads a file by itself first, so that a mistake is reported with its place in it.
fn read(path: &Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let not_understood = |source| ConfigError::File { path: path.to_owned(), source };
    toml::from_str::<Config>(&text).map_err(not_understood)?;
    toml::from_str(&text).map_err(not_understood)
}

/// Turns an environment variable into the table that a file would have for it.
fn variable(name: &str, text: &str) -> Result<Table, ConfigError> {
    let path = name.trim_start_matches(PREFIX).to_ascii_lowercase().replace("__", ".");
    let mut value = value(text);
    for part in path.rsplit('.') {
        value = Value::Table(Table::from_iter([(part.to_owned(), value)]));
    }
    let Value::Table(table) = value else { return Ok(Table::new()) };
    match table.clone().try_into::<Config>() {
        Ok(_) => Ok(table),
        Err(error) if error.message().starts_with("unknown field") => {
            Err(ConfigError::Variable { name: name.to_owned() })
        }
        Err(error) => Err(ConfigError::Value(error)),
    }
}

/// Reads a value as TOML would, or else as text: `5`, `["a"]`, `10s`.
fn value(text: &str) -> Value {
    let as_toml = toml::from_str::<Table>(&format!("value = {text}"));
    match as_toml.ok().and_then(|mut table| table.remove("value")) {
        Some(value) => value,
        None => Value::String(text.to_owned()),
    }
}

/// Lays one table over another, key by key.
fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{execution::Freshness, units::ByteSize};

    use super::*;
    use crate::config::{AddedLanguage, Agbox, RegistryConfig};

    fn table(text: &str) -> Table {
        toml::from_str(text).unwrap()
    }

    fn file(text: &str) -> (tempfile::TempDir, Option<PathBuf>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        (directory, Some(path))
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn later_sources_win_setting_by_setting() {
        let (_directory, file) = file(
            "drain = \"1s\"\nlisten = \"127.0.0.1:1\"\n[executions]\nrunning = 2\nqueued = 2\n",
        );
        let config = load(Sources {
            defaults: table("data = \"/a\"\ndrain = \"9s\""),
            file,
            environment: variables(&[
                ("HOME", "/root"),
                ("RINGFENCE_API_KEY", "x"),
                ("RINGFENCE_LISTEN", "127.0.0.1:2"),
                ("RINGFENCE_EXECUTIONS__RUNNING", "3"),
                ("RINGFENCE_FRESHNESS", "strict"),
                ("RINGFENCE_EXECUTIONS__MAX_MEMORY", "2GiB"),
                ("RINGFENCE_ALLOWED_ORIGINS", "[\"https://a.example\"]"),
                ("RINGFENCE_ALLOWED_HOSTS", "[\"localhost:8000\"]"),
            ]),
            flags: table("listen = \"127.0.0.1:3\""),
        })
        .unwrap();
        let mut expected = Config {
            listen: ([127, 0, 0, 1], 3).into(),
            data: "/a".into(),
            drain: Duration::from_secs(1),
            allowed_origins: vec!["https://a.example".into()],
            allowed_hosts: vec!["localhost:8000".into()],
            freshness: Freshness::Strict,
            ..Config::default()
        };
        expected.executions.running = 3;
        expected.executions.queued = 2;
        expected.executions.max_memory = Some(ByteSize::mib(2048));
        assert_eq!(config, expected);
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let perl = table("languages.perl = {command = [\"/p\", \"{file}\"], env = {A = \"1\"}}");
        let perl: Config = perl.try_into().unwrap();
        let config = Config { public_url: Some("https://a.example".into()), ..perl };
        let text = config.to_toml().unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn a_language_can_be_added_by_a_table() {
        let (_directory, file) = file(
            "[languages.awk]\ncommand = [\"/usr/bin/awk\", \"-f\", \"{file}\"]\n\
             file = \"main.awk\"\nmin_memory = \"8MiB\"\nenv = {POSIXLY_CORRECT = \"1\"}\n",
        );
        let environment = variables(&[("RINGFENCE_LANGUAGES__AWK__POOL_SIZE", "5")]);
        let config = load(Sources { file, environment, ..Sources::default() }).unwrap();
        let languages = config.languages().unwrap();
        let awk = languages.get("awk").unwrap();
        assert_eq!(awk.command, ["/usr/bin/awk", "-f", "{file}"]);
        assert_eq!((awk.file.as_str(), awk.min_memory), ("main.awk", ByteSize::mib(8)));
        assert_eq!((awk.pool_size, awk.env.len()), (5, 1));
    }

    #[test]
    fn a_language_that_cannot_be_added_is_refused_by_its_key() {
        let sh = "command = [\"/bin/sh\", \"{file}\"]\nfile = \"main.sh\"";
        let rows = [
            (format!("[languages.shell]\n{sh}"), "languages.shell is built in"),
            (format!("[languages.Sh]\n{sh}"), "languages.Sh: a name"),
            ("[languages.sh]\nfile = \"main.sh\"".into(), "languages.sh.command "),
            ("[languages.sh]\ncommand = [\"/bin/sh\", \"{file}\"]".into(), "languages.sh.file "),
            (format!("[languages.sh]\n{sh}\npool_size = 65"), "languages.sh.pool_size "),
        ];
        for (text, start) in rows {
            let (_directory, file) = file(&text);
            let refused = load(Sources { file, ..Sources::default() }).unwrap_err();
            let ConfigError::Language(error) = refused else { panic!("{refused:?}") };
            assert!(error.to_string().starts_with(start), "{error}");
        }
    }

    #[test]
    fn the_page_names_every_setting() {
        let page = include_str!("../../../../docs/configuration.md");
        let text = || Some(String::new());
        let mut shown = Config { public_url: text(), user: text(), ..Config::default() };
        shown.executions.pool_memory = Some(ByteSize::default());
        shown.total_memory = Some(ByteSize::default());
        shown.sandboxes.max_memory = Some(ByteSize::default());
        shown.sandboxes.max_disk = Some(ByteSize::default());
        shown.sandboxes.max_cpu = Some(0);
        shown.agbox = Agbox { socket: Some(PathBuf::new()), group: text(), host_paths: Vec::new() };
        for (name, value) in table(&shown.to_toml().unwrap()) {
            let names = match value {
                Value::Table(table) => table.keys().map(|key| format!("{name}.{key}")).collect(),
                _ => vec![name],
            };
            for name in names {
                assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
            }
        }
        let (username, password_file) = (text(), Some("/x".into()));
        let registry = RegistryConfig { username, password_file, ..RegistryConfig::default() };
        for (name, _) in Table::try_from(registry).unwrap() {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
        }
        let env = [(String::new(), String::new())].into();
        let language = AddedLanguage { env, ..AddedLanguage::default() };
        for (name, _) in Table::try_from(language).unwrap() {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
        }
    }

    #[test]
    fn unknown_names_and_unsafe_values_are_refused() {
        let rows = [
            "listne = \"127.0.0.1:1\"",
            "[executions]\nrunnin = 1",
            "drain = 5",
            "drain = \"-5s\"",
            "[executions]\nmax_memory = \"4 gigs\"",
            "listen = \"0.0.0.0:7700\"",
            "listen = \"192.168.0.1:7700\"",
            "listen = \"[::]:7700\"",
            "listen = \"[::]:7700\"\nbehind_proxy = true",
            "[tls]\ncert = \"/a\"",
            "public_url = \"example.org\"",
            "public_url = \"https://me@example.org\"",
            "allowed_hosts = [\"a b\"]",
            "allowed_hosts = [\"https://a.example\"]",
            "[connections]\nwrong_per_peer = 0",
            "freshness = \"new\"",
            "[languages.sh]\ncommand = [\"/bin/sh\", \"{file}\"]\nfile = \"a\"\npool = 1",
            "[executions]\ndisconnect_grace = \"301s\"",
            "[executions]\nrunning = 0",
            "[executions]\nheld = \"3MiB\"",
            "[images]\nallow = [\"a b\"]",
            "[images]\nalow = []",
            "[images]\nrefused_networks = [\"192.0.2.0/33\"]",
            "[images.registries.\"example.com\"]\nusername = \"me\"",
            "[images.registries.\"example.com\"]\nscheme = \"ftp\"",
        ];
        for text in rows {
            let (_directory, file) = file(text);
            assert!(load(Sources { file, ..Sources::default() }).is_err(), "{text}");
            let flags = Sources { flags: table(text), ..Sources::default() };
            assert!(load(flags).is_err(), "{text}");
        }
        for (name, value) in [("RINGFENCE_LISTNE", "x"), ("RINGFENCE_LISTEN", "0.0.0.0:1")] {
            let environment = variables(&[(name, value)]);
            assert!(load(Sources { environment, ..Sources::default() }).is_err(), "{name}");
        }
        let (_directory, file) = file("listen = \"[::1]:7700\"");
        load(Sources { file, ..Sources::default() }).unwrap();
    }
}
