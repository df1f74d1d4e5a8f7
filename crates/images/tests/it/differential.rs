//! What another reader makes of the same archives. Whatever we accept, it must read in the same way;
//! we may refuse more.

use std::{fs, path::Path, process::Command};

use images::archive::{Bounds, EntryKind, Reader};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use crate::{
    packing::{BLOCK, pack, seal},
    random::items,
};

/// Lists archives with Python's own reader: one line for each entry, a blank one after each archive.
const OTHER: &str = r#"
import sys, tarfile
KINDS = {b"0": "file", b"\0": "file", b"7": "file", b"1": "hard", b"2": "symbolic", b"3": "character",
         b"4": "block", b"5": "directory", b"6": "fifo"}
def hexed(text): return text.encode("utf-8", "surrogateescape").rstrip(b"/").hex()
for path in sys.argv[1:]:
    try:
        for it in tarfile.open(path, "r:", errors="surrogateescape", encoding="utf-8"):
            kind = KINDS.get(it.type, it.type)
            size = it.size if kind == "file" else 0
            target = hexed(it.linkname) if kind in ("hard", "symbolic") else ""
            print(kind, hexed(it.name), target, it.mode & 0o7777, it.uid, it.gid, size)
    except Exception as error:
        print("error", type(error).__name__)
    print()
"#;

fn listed_by_the_other(paths: &[impl AsRef<Path>]) -> Vec<Vec<String>> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-c").arg(OTHER).args(paths.iter().map(AsRef::as_ref));
    let output = command.output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let archives = text.strip_suffix("\n\n").unwrap_or(&text).split("\n\n");
    let archives = archives.map(|it| it.trim().lines().map(str::to_owned).collect());
    archives.collect()
}

fn listed_by_us(archive: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(archive, Bounds::default());
    let mut lines = Vec::new();
    while let Some(entry) = reader.next_entry().ok()? {
        let (kind, target) = match &entry.kind {
            EntryKind::File => ("file", &b""[..]),
            EntryKind::HardLink { target } => ("hard", &target[..]),
            EntryKind::SymbolicLink { target } => ("symbolic", &target[..]),
            EntryKind::CharacterDevice => ("character", &b""[..]),
            EntryKind::BlockDevice => ("block", &b""[..]),
            EntryKind::Directory => ("directory", &b""[..]),
            EntryKind::Fifo => ("fifo", &b""[..]),
        };
        let (name, target) = (hexed(&entry.name), hexed(target));
        let (mode, uid, gid, size) = (entry.mode, entry.uid, entry.gid, entry.size);
        lines.push(format!("{kind} {name} {target} {mode} {uid} {gid} {size}"));
    }
    Some(lines)
}

fn hexed(text: &[u8]) -> String {
    let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    text[..end].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_the_systems_tar_packs_is_read_as_the_other_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let deep = source.join(["a-rather-long-name-of-a-directory"; 6].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("größe"), "some data").unwrap();
    fs::write(source.join("plain"), vec![7; 1500]).unwrap();
    fs::hard_link(source.join("plain"), source.join("same")).unwrap();
    std::os::unix::fs::symlink("x".repeat(150), source.join("link")).unwrap();
    std::os::unix::fs::symlink("/plain", source.join("short")).unwrap();
    let formats = ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"];
    let mut archives = Vec::new();
    for format in formats {
        let archive = folder.path().join(format);
        let mut tar = Command::new("tar");
        tar.arg(format!("--format={format}")).arg("--sort=name").arg("-C").arg(&source);
        // The two old forms have no room for the long names, and say so by their exit code.
        let output = tar.arg("-cf").arg(&archive).arg(".").output().expect("tar runs");
        let may_fail = ["ustar", "v7"].contains(&format);
        assert!(output.status.success() || may_fail, "{output:?}");
        archives.push(archive);
    }
    let theirs = listed_by_the_other(&archives);
    for ((archive, theirs), format) in archives.iter().zip(theirs).zip(formats) {
        let ours = listed_by_us(&fs::read(archive).unwrap());
        assert!(theirs.len() >= 5, "{format}: {theirs:?}");
        assert_eq!(ours, Some(theirs), "{format}");
    }
}

#[test]
fn what_we_accept_of_damaged_archives_the_other_reads_in_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let strategy = (items(), damage, any::<bool>());
    let (mut paths, mut ours) = (Vec::new(), Vec::new());
    for number in 0..3000 {
        let (items, damage, is_sealed) = strategy.new_tree(&mut runner).unwrap().current();
        let mut archive = pack(&items);
        for (index, byte) in damage {
            let at = index.index(archive.len());
            archive[at] = byte;
            if is_sealed {
                // A right checksum lets the damage through to what comes after.
                let start = at - at % BLOCK;
                seal(&mut archive[start..start + BLOCK]);
            }
        }
        if let Some(lines) = listed_by_us(&archive) {
            let path = folder.path().join(number.to_string());
            fs::write(&path, &archive).unwrap();
            paths.push(path);
            ours.push(lines);
        }
    }
    assert!(ours.len() > 500, "only {} were accepted", ours.len());
    let theirs: Vec<_> = paths.chunks(500).flat_map(listed_by_the_other).collect();
    assert_eq!(theirs.len(), ours.len());
    for ((mut theirs, ours), path) in theirs.into_iter().zip(&ours).zip(&paths) {
        // The other may refuse what we read, as long as it read the same until then.
        let refused = theirs.pop_if(|line| line.starts_with("error "));
        let read =
            if refused.is_some() { &ours[..theirs.len().min(ours.len())] } else { &ours[..] };
        assert_eq!(theirs, read, "{}", fs::read(path).unwrap().escape_ascii());
    }
}
