//! What the server writes down for its operator at its first start: `ringfence.toml` in its data
//! directory.
//!
//! The directory is the daemon's. Whatever has more rights than the daemon does not read this file, so
//! only settings that the daemon alone acts by can be in it.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// What is written at the first start.
const FIRST: &str = "\
# Written at the first start. What is set in the file of --config, in the environment or by a flag wins.

[sessions]
# What a sandbox is made of for which nobody names an image. Without this line, who names none is refused.
image = \"host\"
";

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    sessions: Image,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Image {
    image: Option<String>,
}

impl Config {
    /// Returns the file that is written at the first start.
    pub fn first_file(&self) -> PathBuf {
        self.data.join("ringfence.toml")
    }

    /// Takes what was written at the first start where nothing else is set. If this is the first start, it is
    /// written.
    pub(crate) fn settle(&mut self) -> Result<(), ConfigError> {
        if self.sessions.image.is_none() && !self.recall()? {
            let path = self.first_file();
            write(&path).map_err(|source| ConfigError::Write { path, source })?;
            self.recall()?;
        }
        Ok(())
    }

    /// Takes it if it is there. Returns whether it was.
    pub fn recall(&mut self) -> Result<bool, ConfigError> {
        let path = self.first_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(ConfigError::Read { path, source }),
        };
        let written: Written =
            toml::from_str(&text).map_err(|source| ConfigError::File { path, source })?;
        if self.sessions.image.is_none() {
            self.sessions.image = written.sessions.image;
        }
        Ok(true)
    }
}

/// Has it on disk, as a whole or not at all.
fn write(path: &Path) -> io::Result<()> {
    let unfinished = path.with_extension("toml.new");
    let mut file = File::create(&unfinished)?;
    file.write_all(FIRST.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(data: &Path) -> Config {
        Config { data: data.to_owned(), ..Config::default() }
    }

    fn image_of(mut config: Config) -> Option<String> {
        config.settle().unwrap();
        config.sessions.image
    }

    #[test]
    fn the_image_of_sessions_is_written_at_the_first_start_and_then_the_operators() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(image_of(config(data.path())), Some("host".to_owned()));
        let path = config(data.path()).first_file();
        assert_eq!(fs::read_to_string(&path).unwrap(), FIRST);
        fs::write(&path, "[sessions]\nimage = \"docker.io/library/python:3.12\"\n").unwrap();
        assert!(image_of(config(data.path())).unwrap().ends_with("python:3.12"));
        fs::write(&path, "").unwrap();
        assert_eq!(image_of(config(data.path())), None);
    }

    #[test]
    fn what_is_set_elsewhere_wins_and_nothing_else_can_be_set_there() {
        let data = tempfile::tempdir().unwrap();
        let sessions = crate::config::Sessions {
            image: Some(String::new()),
            ..crate::config::Sessions::default()
        };
        assert_eq!(image_of(Config { sessions, ..config(data.path()) }), Some(String::new()));
        let mut config = config(data.path());
        assert!(!config.first_file().exists());
        fs::write(config.first_file(), "user = \"root\"\n").unwrap();
        assert!(matches!(config.settle(), Err(ConfigError::File { .. })));
    }
}
