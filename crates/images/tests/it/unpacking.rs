//! What becomes of honest layers.

use std::{fs, io::Write as _, os::unix::fs::MetadataExt as _};

use images::{
    digest::Digest,
    unpack::{LeftOut, Owners, Rules},
};

use crate::{
    packing::{Item, directory, extended, file, hard, item, long, pack, symbolic},
    tree::{chain, is_root, listing, rules, unpack_to},
};

fn honest() -> Vec<u8> {
    let long_name = format!("deep/{}", "n".repeat(200));
    pack(&[
        directory("./"),
        Item { mode: 0o555, ..directory("bin/") },
        Item { mode: 0o755, ..file("bin/tool", "program") },
        hard("bin/same", "bin/tool"),
        symbolic("bin/link", "/bin/tool"),
        Item { flag: 0, ..directory("old/") },
        long(b'L', &long_name),
        file("shortened", "long"),
        extended(&[("path", "größe".as_bytes()), ("mtime", b"-1.5")]),
        file("x", "wide"),
        Item { mode: 0o1777, ..directory("tmp") },
        file("empty", ""),
        file("twice", "first"),
        file("twice", "second"),
    ])
}

fn expected() -> Vec<String> {
    let mut lines = vec![
        "bin directory 555".to_owned(),
        "bin/link link /bin/tool".to_owned(),
        "bin/same file 755 2 program".to_owned(),
        "bin/tool file 755 2 program".to_owned(),
        "deep directory 755".to_owned(),
        format!("deep/{} file 644 1 long", "n".repeat(200)),
        "empty file 644 1 ".to_owned(),
        "größe file 644 1 wide".to_owned(),
        "old directory 755".to_owned(),
        "tmp directory 1777".to_owned(),
        "twice file 644 1 second".to_owned(),
    ];
    lines.sort();
    lines
}

#[test]
fn plain_gzip_and_zstandard_layers_become_the_same_directory() {
    let archive = honest();
    // Two members after one another are one stream.
    let (first, second) = archive.split_at(700);
    let mut gzip = Vec::new();
    for part in [first, second] {
        let mut member = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::fast());
        member.write_all(part).unwrap();
        member.finish().unwrap();
    }
    let zstandard = zstd::encode_all(&archive[..], 1).unwrap();
    for packed in [archive.clone(), gzip, zstandard] {
        let target = tempfile::tempdir().unwrap();
        let report = unpack_to(&packed, target.path(), &rules()).unwrap();
        assert_eq!(listing(target.path()), expected());
        assert_eq!(report.diff_id, Digest::of(&archive));
        assert_eq!((report.entries, report.bytes), (13, 26));
        assert_eq!(report.left_out, LeftOut::default());
    }
}

#[test]
fn other_compressions_are_named() {
    let rows: [(&[u8], &str); 2] = [(b"BZh91AY", "bzip2"), (b"\xfd7zXZ\0\0", "xz")];
    for (start, name) in rows {
        let target = tempfile::tempdir().unwrap();
        let error = unpack_to(start, target.path(), &rules()).unwrap_err();
        let expected = format!("the layer is compressed in a way that is not supported: {name}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn times_are_kept_even_those_of_directories_and_before_1970() {
    let target = tempfile::tempdir().unwrap();
    let items = [
        Item { mtime: -5, ..directory("a") },
        Item { mtime: -7, ..file("a/b", "x") },
        extended(&[("mtime", b"-1.5")]),
        symbolic("a/c", "b"),
        Item { mtime: 3_000_000_000, ..file("d", "x") },
    ];
    unpack_to(&pack(&items), target.path(), &rules()).unwrap();
    let time = |name: &str| {
        let data = fs::symlink_metadata(target.path().join(name)).unwrap();
        (data.mtime(), data.mtime_nsec())
    };
    let times = ["a", "a/b", "a/c", "d"].map(time);
    assert_eq!(times, [(-5, 0), (-7, 0), (-2, 500_000_000), (3_000_000_000, 0)]);
}

#[test]
fn set_id_bits_capabilities_and_foreign_attributes_are_left_out() {
    let target = tempfile::tempdir().unwrap();
    let items = [
        Item { mode: 0o6755, ..file("su", "x") },
        Item { mode: 0o2775, ..directory("mail") },
        extended(&[
            ("SCHILY.xattr.security.capability", b"\x01\0\0\x02"),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.kept", b"value"),
        ]),
        file("marked", "x"),
        item(b'6', "pipe"),
    ];
    let report = unpack_to(&pack(&items), target.path(), &rules()).unwrap();
    let left_out = LeftOut { special_files: 1, set_id_bits: 1, xattrs: 3 };
    assert_eq!(report.left_out, left_out);
    let lines = ["mail directory 2775", "marked file 644 1 x", "su file 755 1 x"];
    assert_eq!(listing(target.path()), lines);
    let mut names = vec![0; 256];
    let marked = target.path().join("marked");
    let length = rustix::fs::listxattr(&marked, &mut names).unwrap();
    assert_eq!(names[..length].escape_ascii().to_string(), r"user.kept\x00");
}

#[test]
fn owners_are_kept_where_the_caller_may_give_files_away() {
    let target = tempfile::tempdir().unwrap();
    let owned = |item: Item| Item { uid: 1000, gid: 65_535, ..item };
    let items = [owned(directory("a")), owned(file("a/b", "")), owned(symbolic("c", "a"))];
    let result = unpack_to(&pack(&items), target.path(), &rules());
    let own = rustix::process::geteuid().as_raw();
    let expected =
        if is_root() { (1000, 65_535) } else { (own, rustix::process::getegid().as_raw()) };
    result.unwrap();
    for name in ["a", "a/b", "c"] {
        let data = fs::symlink_metadata(target.path().join(name)).unwrap();
        assert_eq!((data.uid(), data.gid()), expected, "{name}");
    }
}

#[test]
fn owners_that_no_sandbox_has_are_refused() {
    let kept = Rules { owners: Owners::Kept { below: 65_536 }, ..rules() };
    for id in [65_536, 1 << 31, u64::from(u32::MAX), 1 << 40] {
        let target = tempfile::tempdir().unwrap();
        let archive = pack(&[Item { gid: id, ..file("a", "x") }]);
        let error = unpack_to(&archive, target.path(), &kept).unwrap_err();
        let expected =
            format!(r#""a" in the layer belongs to {id}; a sandbox has the ids below 65536"#);
        assert_eq!(chain(&error), expected);
        let caller = Rules { owners: Owners::Caller, ..kept };
        unpack_to(&archive, target.path(), &caller).unwrap();
    }
}

#[test]
fn a_deep_tree_needs_no_deep_stack() {
    let target = tempfile::tempdir().unwrap();
    let name = vec!["d"; 256].join("/");
    unpack_to(
        &pack(&[extended(&[("path", name.as_bytes())]), directory("x")]),
        target.path(),
        &rules(),
    )
    .unwrap();
    assert!(target.path().join(name).is_dir());
}
