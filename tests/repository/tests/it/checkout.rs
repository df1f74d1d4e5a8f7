//! The files of this checkout, as they would be committed.

use std::{fs, path::Path};

/// Folders and files that hold what was built or fetched, not what was written.
const NOT_OURS: [&str; 6] = [".git", "target", "node_modules", "dist", "results", "__pycache__"];

/// Returns the folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package is two folders below the root")
}

/// Returns the text of a file that must be there.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Returns every text file as (path from the root, text), sorted by path.
pub(crate) fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(root(), &mut found);
    found.sort();
    found
}

/// Returns the files with that ending below that folder.
pub(crate) fn files_below(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut files = files();
    files.retain(|(path, _)| path.starts_with(folder) && path.ends_with(ending));
    files
}

fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the checkout can be read") {
        let entry = entry.expect("the checkout can be read");
        let kind = entry.file_type().expect("an entry has a type");
        let name = entry.file_name();
        // In a worktree of git, `.git` is a file.
        if NOT_OURS.iter().any(|other| name == *other) {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            // A file that is not text has no rules here.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                found.push((from_root(&entry.path()), text));
            }
        }
    }
}

fn from_root(path: &Path) -> String {
    let path = path.strip_prefix(root()).expect("the walk starts at the root");
    path.to_string_lossy().into_owned()
}
