//! Trees on disk, and what is handed over of them.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    path::Path,
};

use rustix::fs::mkfifoat;

use super::*;

const ALL: u64 = u64::MAX;

fn asked() -> Collect {
    Collect {
        files: vec!["result.json".into()],
        folders: vec!["output".into()],
        max_entries: 100,
        max_depth: 8,
        max_file_bytes: ALL,
        max_total_bytes: ALL,
    }
}

/// Returns every entry as `PATH CONTENT`, and the end.
fn collected(workspace: &Path, collect: &Collect) -> (Vec<String>, CollectEnd) {
    let mut entries = Vec::new();
    let mut tell = |entry: ReportedEntry, file: Option<OwnedFd>| {
        assert_eq!(
            matches!(entry.content, ReportedContent::File { .. }),
            file.is_some(),
            "{entry:?}"
        );
        let text = file.map(|file| std::io::read_to_string(File::from(file)).unwrap());
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        entries.push(match (entry.content, text) {
            (ReportedContent::File { size }, Some(text)) if size == text.len() as u64 => {
                format!("{path} {text:?}")
            }
            (content, _) => format!("{path} {content:?}"),
        });
        Ok(())
    };
    let workspace = OwnedFd::from(File::open(workspace).unwrap());
    let end = walk(&workspace, collect, &mut tell).unwrap();
    (entries, end)
}

fn tree(files: &[&str]) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for name in files {
        let path = tree.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    tree
}

#[test]
fn files_are_in_the_order_of_their_path_bytes_and_the_named_files_come_first() {
    let names = ["result.json", "other", "output/a/b", "output/a-b", "output/a.b", "output/a0"];
    let tree = tree(&names);
    fs::create_dir(tree.path().join("output/empty")).unwrap();
    let (entries, end) = collected(tree.path(), &asked());
    let expected = ["result.json", "output/a-b", "output/a.b", "output/a/b", "output/a0"];
    assert_eq!(entries, expected.map(|name| format!("{name} \"x\"")));
    assert_eq!(end, CollectEnd::Complete);
}

#[test]
fn nothing_at_all_is_complete() {
    let tree = tree(&["other"]);
    assert_eq!(collected(tree.path(), &asked()), (Vec::new(), CollectEnd::Complete));
}

#[test]
fn only_regular_files_are_opened() {
    let tree = tree(&["output/file", "outside"]);
    let at = |name: &str| tree.path().join("output").join(name);
    symlink("file", at("link")).unwrap();
    symlink("../outside", at("out")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("/proc/self/root", at("root")).unwrap();
    symlink("nothing", at("broken")).unwrap();
    mkfifoat(CWD, at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(tree.path().join("result.json")).unwrap();
    let (entries, end) = collected(tree.path(), &asked());
    let expected = [
        "result.json Other(Directory)",
        "output/broken Other(SymbolicLink)",
        "output/file \"x\"",
        "output/link Other(SymbolicLink)",
        "output/out Other(SymbolicLink)",
        "output/pipe Other(Fifo)",
        "output/root Other(SymbolicLink)",
        "output/socket Other(Socket)",
        "output/up Other(SymbolicLink)",
    ];
    assert_eq!(
        (entries.as_slice(), end),
        (expected.map(String::from).as_slice(), CollectEnd::Complete)
    );
}

#[test]
fn a_folder_that_is_a_link_is_not_entered_and_one_that_is_a_file_is_a_file() {
    let outside = tree(&["secret"]);
    let workspace = tree(&["result.json"]);
    symlink(outside.path(), workspace.path().join("output")).unwrap();
    let (entries, _) = collected(workspace.path(), &asked());
    assert_eq!(entries, ["result.json \"x\"", "output Other(SymbolicLink)"]);
    // Nor is a link on the way to a path.
    let below = Collect { folders: vec!["output/secret".into()], ..asked() };
    let (entries, _) = collected(workspace.path(), &below);
    assert_eq!(entries, ["result.json \"x\"", "output/secret Unreadable(40)"]);
    assert_eq!(collected(tree(&["output"]).path(), &asked()).0, ["output \"x\""]);
}

#[test]
fn a_path_cannot_lead_out_of_the_workspace() {
    let tree = tree(&["secret", "workspace/output/file"]);
    for path in ["../secret", "/etc/passwd", ".."] {
        let files = vec![path.into()];
        let (entries, end) =
            collected(&tree.path().join("workspace"), &Collect { files, ..asked() });
        assert_eq!(entries, [format!("{path} Unreadable(18)"), "output/file \"x\"".into()]);
        assert_eq!(end, CollectEnd::Complete);
    }
}

#[test]
fn the_limit_of_entries_ends_the_walk_in_its_order() {
    let names: Vec<String> = (0..50).map(|number| format!("output/{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tree = tree(&names);
    for count in [1, 2, 30, 50] {
        let (entries, end) = collected(tree.path(), &Collect { max_entries: count, ..asked() });
        // The folder counts, too.
        let files = usize::try_from(count).unwrap() - 1;
        let expected: Vec<_> = names[..files].iter().map(|name| format!("{name} \"x\"")).collect();
        assert_eq!((entries, end), (expected, CollectEnd::Limit(CollectLimit::Entries)), "{count}");
    }
    let (entries, end) = collected(tree.path(), &Collect { max_entries: 51, ..asked() });
    assert_eq!((entries.len(), end), (50, CollectEnd::Complete));
}

#[test]
fn what_waits_in_upper_directories_is_cut_from_its_end() {
    let mut names = vec!["output/z".to_owned()];
    for level in 1..6 {
        let folder = "a/".repeat(level);
        names.extend((0..5).map(|number| format!("output/{folder}{number}")));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tree = tree(&names);
    let mut all = collected(tree.path(), &asked()).0;
    assert_eq!(all.len(), names.len());
    assert!(all.is_sorted());
    // Directories come when they are reached: five of `a` and `output`, at different places.
    let (entries, end) = collected(tree.path(), &Collect { max_entries: 16, ..asked() });
    assert_eq!(end, CollectEnd::Limit(CollectLimit::Entries));
    all.truncate(entries.len());
    assert_eq!(entries, all);
}

#[test]
fn directories_below_the_deepest_level_are_reported() {
    let tree = tree(&["output/a", "output/b/c", "output/b/d/e"]);
    let with = |max_depth| collected(tree.path(), &Collect { max_depth, ..asked() });
    let complete = |entries: &[&str]| {
        (entries.iter().map(ToString::to_string).collect::<Vec<_>>(), CollectEnd::Complete)
    };
    assert_eq!(with(0), complete(&["output Other(Directory)"]));
    assert_eq!(with(1), complete(&["output/a \"x\"", "output/b Other(Directory)"]));
    let second = ["output/a \"x\"", "output/b/c \"x\"", "output/b/d Other(Directory)"];
    assert_eq!(with(2), complete(&second));
    assert_eq!(with(3).0.last().unwrap(), "output/b/d/e \"x\"");
}

#[test]
fn sizes_are_limited_for_each_file_and_for_all_together() {
    let tree = tree(&["output/a", "output/b", "output/c"]);
    let hole = File::create(tree.path().join("output/b")).unwrap();
    hole.set_len(1 << 30).unwrap();
    let asked = Collect { max_file_bytes: 100, max_total_bytes: 2, ..asked() };
    let (entries, end) = collected(tree.path(), &asked);
    assert_eq!(
        entries,
        ["output/a \"x\"", "output/b TooLarge { size: 1073741824 }", "output/c \"x\""]
    );
    assert_eq!(end, CollectEnd::Complete);
    let (entries, end) = collected(tree.path(), &Collect { max_total_bytes: 1, ..asked });
    assert_eq!((entries.len(), end), (2, CollectEnd::Limit(CollectLimit::TotalBytes)));
}

#[test]
fn names_are_bytes() {
    let tree = tree(&["output/a"]);
    let long = "n".repeat(255);
    for name in [b"new\nline".as_slice(), b"\xff\xfe", long.as_bytes()] {
        fs::write(tree.path().join("output").join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let mut paths = Vec::new();
    let mut tell = |entry: ReportedEntry, _: Option<OwnedFd>| {
        paths.push(entry.path);
        Ok(())
    };
    let workspace = OwnedFd::from(File::open(tree.path()).unwrap());
    walk(&workspace, &asked(), &mut tell).unwrap();
    let expected = [b"a".as_slice(), b"new\nline", long.as_bytes(), b"\xff\xfe"];
    assert_eq!(paths, expected.map(|name| [b"output/".as_slice(), name].concat()));
}

#[test]
fn the_longest_path_fits_in_a_packet() {
    let path = vec![b'x'; MAX_DEPTH as usize * 256];
    let entry = ReportedEntry { path, content: ReportedContent::File { size: u64::MAX } };
    assert!(wire::encode(&CollectReport::Entry(entry)).unwrap().len() <= MAX_PACKET);
}
