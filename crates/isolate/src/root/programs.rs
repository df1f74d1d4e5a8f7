//! The machine's programs, as every root has them: `/usr`, and what does not lead there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    io::Errno,
    mount::{mount_bind, mount_bind_recursive},
};

use super::{ADDED, EMPTY, overlay, put};
use crate::{posture::SystemFiles, sandbox::SYSTEM};

/// Where the machine has programs, in the order in which they are looked for.
pub(super) const PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The directories of programs on this machine.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// On a machine with a merged `/usr`: `bin -> usr/bin`.
    links: Vec<(&'static str, PathBuf)>,
    folders: Vec<&'static str>,
    /// What is mounted below the folders, parents first: an overlay shows one file system.
    mounts: Vec<PathBuf>,
}

impl Programs {
    /// Looks at the machine.
    pub(super) fn find() -> Self {
        let mut programs = Self::default();
        for name in SYSTEM {
            let host = Path::new("/").join(name);
            match fs::read_link(&host) {
                Ok(target) => programs.links.push((name, target)),
                Err(_) if host.is_dir() => programs.folders.push(name),
                Err(_) => {}
            }
        }
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        programs.mounts = mounts_below(&table, &programs.folders);
        programs
    }

    pub(super) fn links(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.links.iter().map(|(name, target)| (*name, target.as_path()))
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = &'static str> {
        self.folders.iter().copied()
    }

    /// Mounts the programs in a root, over layers of the template.
    pub(super) fn mount(
        &self,
        root: &Path,
        template: &Path,
        files: SystemFiles,
    ) -> Result<(), Errno> {
        for name in &self.folders {
            let (host, at) = (Path::new("/").join(name), root.join(name));
            match files {
                SystemFiles::Private => {
                    let layer = if *name == "usr" { ADDED } else { EMPTY };
                    put(&overlay(&[&template.join(layer), &host])?, &at)?;
                }
                SystemFiles::Shared => mount_bind_recursive(&host, &at)?,
            }
        }
        if files == SystemFiles::Shared {
            return Ok(());
        }
        for host in &self.mounts {
            let at = root.join(host.strip_prefix("/").unwrap_or(host));
            if host.is_dir() {
                put(&overlay(&[&template.join(EMPTY), host])?, &at)?;
            } else {
                mount_bind(host, &at)?;
            }
        }
        Ok(())
    }
}

/// Returns the mount points below these folders of `/`, parents first and each once.
fn mounts_below(table: &str, folders: &[&str]) -> Vec<PathBuf> {
    let is_below = |path: &PathBuf| {
        folders.iter().any(|name| {
            let folder = Path::new("/").join(name);
            path.starts_with(&folder) && *path != folder
        })
    };
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    let mut mounts: Vec<PathBuf> = points.map(PathBuf::from).filter(is_below).collect();
    mounts.sort();
    mounts.dedup();
    mounts
}

/// Reads a path of the mount table, where blanks and backslashes are octal.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(path.to_owned(), |path, (code, plain)| path.replace(code, plain))
}

/// Returns what `python` is to lead to, if these folders have a `python3` and no `python`.
pub(super) fn python_to_add(folders: &[PathBuf]) -> Option<PathBuf> {
    let find = |name: &str| folders.iter().map(|it| it.join(name)).find(|path| path.is_file());
    if find("python").is_some() {
        return None;
    }
    find("python3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_added_only_where_the_machine_has_python3_and_no_python() {
        let machine = tempfile::tempdir().unwrap();
        let folders = ["local", "bin"].map(|name| machine.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        assert_eq!(python_to_add(&folders), None);
        fs::write(folders[1].join("python3"), "").unwrap();
        assert_eq!(python_to_add(&folders), Some(folders[1].join("python3")));
        fs::write(folders[0].join("python"), "").unwrap();
        assert_eq!(python_to_add(&folders), None);
    }

    #[test]
    fn mounts_below_the_folders_of_programs_are_found_parents_first() {
        let table = "22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            30 22 0:5 / /usr/local/my\\040tools/deep rw - tmpfs t rw\n\
            31 22 0:6 / /usr/local/my\\040tools rw - tmpfs t rw\n\
            32 22 0:6 / /usr/local/my\\040tools rw - tmpfs t rw\n\
            33 22 0:7 / /usr rw - tmpfs t rw\n\
            34 22 0:8 / /usrlocal rw - tmpfs t rw\n\
            35 22 0:9 / /home rw - tmpfs t rw\n";
        let found = mounts_below(table, &["usr", "lib64"]);
        assert_eq!(
            found,
            [Path::new("/usr/local/my tools"), Path::new("/usr/local/my tools/deep")]
        );
    }
}
