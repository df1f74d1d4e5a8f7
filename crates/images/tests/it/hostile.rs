//! Archives that try to get out, to deceive, or to fill the machine (P20, X08).

use std::{fs, io::Write as _};

use images::unpack::Limits;

use crate::{
    packing::{
        BLOCK, Item, directory, extended, file, hard, item, long, pack, record, seal, symbolic,
    },
    tree::{chain, listing, rules, unpack_to},
};

/// Unpacks beside something precious. Returns what came of it; the precious thing stays.
fn attempt(archive: &[u8], limits: Limits) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    let target = folder.path().join("target");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(outside.join("precious"), "precious").unwrap();
    fs::write(folder.path().join("precious"), "precious").unwrap();
    let rules = images::unpack::Rules { limits, ..rules() };
    let result = unpack_to(archive, &target, &rules);
    let inside = listing(&target);
    fs::remove_dir_all(&target).unwrap();
    let left = listing(folder.path());
    let expected = [
        "outside directory 755",
        "outside/precious file 644 1 precious",
        "precious file 644 1 precious",
    ];
    assert_eq!(left, expected, "something outside was touched");
    result.map(|_| inside).map_err(|error| chain(&error))
}

fn assert_refused(rows: &[(&[Item], &str)]) {
    for (items, expected) in rows {
        let result = attempt(&pack(items), Limits::default());
        assert_eq!(result, Err((*expected).to_owned()));
    }
}

#[test]
fn names_that_lead_out_are_refused() {
    assert_refused(&[
        (&[file("../precious", "x")], r#"the name "../precious" in the layer is not allowed"#),
        (
            &[file("a/../../precious", "x")],
            r#"the name "a/../../precious" in the layer is not allowed"#,
        ),
        (
            &[long(b'L', "../precious"), file("a", "x")],
            r#"the name "../precious" in the layer is not allowed"#,
        ),
        (
            &[extended(&[("path", b"../precious")]), file("a", "x")],
            r#"the name "../precious" in the layer is not allowed"#,
        ),
        (&[directory("..")], r#"the name ".." in the layer is not allowed"#),
        (&[item(b'0', ".wh...")], r#"the name ".wh..." in the layer is not allowed"#),
        (&[symbolic("/", "x")], r#"the name "/" in the layer is not allowed"#),
    ]);
}

#[test]
fn an_absolute_name_is_one_inside_the_image() {
    let result = attempt(&pack(&[file("/etc/passwd", "x")]), Limits::default());
    assert_eq!(result.unwrap(), ["etc directory 755", "etc/passwd file 644 1 x"]);
}

#[test]
fn nothing_is_written_through_a_link() {
    let way = |name: &str| {
        format!("the layer has something else than directories on the way to {name:?}")
    };
    assert_refused(&[
        (&[symbolic("a", "../outside"), file("a/precious", "x")], &way("a")),
        (&[symbolic("a", "/"), directory("a/b/c")], &way("a/b")),
        (&[symbolic("a", "."), file("a/b", "x")], &way("a")),
        (&[file("a", "x"), file("a/b", "x")], &way("a")),
        (&[symbolic("a", "../outside"), item(b'0', "a/.wh.precious")], &way("a")),
        (&[symbolic("a", "../outside"), item(b'0', "a/.wh..wh..opq")], &way("a")),
        (
            &[symbolic("a", "../outside"), hard("b", "a/precious")],
            r#"the layer has the hard link "b" to what is no file of it"#,
        ),
    ]);
}

#[test]
fn a_file_takes_the_place_of_a_link_not_of_what_it_leads_to() {
    let rows: &[(&[Item], &[&str])] = &[
        (&[symbolic("a", "../precious"), file("a", "x")], &["a file 644 1 x"]),
        (&[symbolic("a", "../outside"), directory("a")], &["a directory 755"]),
        (
            &[symbolic("a", "../precious"), hard("b", "a"), file("b", "x")],
            &["a link ../precious", "b file 644 1 x"],
        ),
        (&[symbolic("a", "../precious"), symbolic("a", "b")], &["a link b"]),
    ];
    for (items, expected) in rows {
        assert_eq!(attempt(&pack(items), Limits::default()).unwrap(), *expected, "{items:?}");
    }
}

#[test]
fn a_hard_link_leads_to_a_file_of_the_same_layer_only() {
    let no_file = r#"the layer has the hard link "b" to what is no file of it"#;
    assert_refused(&[
        (&[hard("b", "/etc/passwd")], no_file),
        (&[hard("b", "missing")], no_file),
        (&[hard("b", "")], no_file),
        (&[directory("a"), hard("b", "a")], no_file),
        (&[item(b'0', ".wh.a"), hard("b", "a")], no_file),
        (&[hard("b", "../precious")], r#"the name "../precious" in the layer is not allowed"#),
    ]);
}

#[test]
fn devices_are_refused_outside_dev_and_left_out_in_it() {
    assert_refused(&[
        (&[item(b'3', "null")], r#"the layer has the device "null""#),
        (&[item(b'4', "a/sda")], r#"the layer has the device "a/sda""#),
        (&[item(b'3', "dev")], r#"the layer has the device "dev""#),
        (&[item(b'3', "a/dev/null")], r#"the layer has the device "a/dev/null""#),
    ]);
    let items = [item(b'3', "dev/null"), item(b'4', "./dev/disk/a"), item(b'6', "run/initctl")];
    assert_eq!(attempt(&pack(&items), Limits::default()).unwrap(), Vec::<String>::new());
}

#[test]
fn x08_mount_points_of_a_sandbox_are_directories() {
    assert_refused(&[
        (&[symbolic("dev", "/tmp")], r#""dev" in the layer is not a directory"#),
        (&[symbolic("./proc/", "etc")], r#""./proc/" in the layer is not a directory"#),
        (&[directory("sys"), file("sys", "x")], r#""sys" in the layer is not a directory"#),
    ]);
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    let twice = "the layer is not a sound archive: the archive can be read in two ways: something is said twice about one entry";
    let data = "the layer is not a sound archive: the archive can be read in two ways: an entry that has no data says it has some";
    let sparse = "the layer is not a sound archive: sparse files are not supported; pack the archive without them";
    assert_refused(&[
        (&[extended(&[("path", b"a"), ("path", b"b")]), file("c", "x")], twice),
        (&[extended(&[("path", b"a")]), long(b'L', "b"), file("c", "x")], twice),
        (&[long(b'L', "a"), long(b'L', "b"), file("c", "x")], twice),
        (
            &[extended(&[]), extended(&[]), file("c", "x")],
            "the layer is not a sound archive: the archive can be read in two ways: two extended headers for one entry",
        ),
        (&[Item { size: Some(512), ..directory("a") }, file("b", "x")], data),
        (&[extended(&[("size", b"512")]), symbolic("a", "b"), file("b", "x")], data),
        (
            &[Item { flag: b'g', ..extended(&[("path", b"a")]) }, file("c", "x")],
            "the layer is not a sound archive: the archive can be read in two ways: a global header changes entries",
        ),
        (
            &[file("a/", "x")],
            "the layer is not a sound archive: the archive can be read in two ways: a file with the name of a directory",
        ),
        (
            &[long(b'L', "a"), Item { flag: 0, ..file("b/", "x") }],
            "the layer is not a sound archive: the archive can be read in two ways: a directory by one name and a file by another",
        ),
        (&[item(b'S', "a")], sparse),
        (&[extended(&[("GNU.sparse.major", b"1")]), file("a", "x")], sparse),
        (
            &[item(b'Z', "a")],
            "the layer is not a sound archive: an entry of the archive is of the unknown type 0x5a",
        ),
        (
            &[long(b'L', "a")],
            "the layer is not a sound archive: the archive ends in the middle of an entry",
        ),
    ]);
    // A reader that goes by whole blocks finds another name behind the comment.
    let comment = record("comment", b"x");
    let (size, data) = (Some(comment.len() as u64), [comment, record("path", b"b")].concat());
    let hidden = Item { data, size, ..extended(&[]) };
    assert_refused(&[(
        &[hidden, file("a", "x")],
        "the layer is not a sound archive: the archive can be read in two ways: an extended header goes on after its end",
    )]);
    let lone = [file("a", "").bytes(), vec![0; BLOCK], file("b", "").bytes()].concat();
    assert_eq!(
        attempt(&lone, Limits::default()).unwrap_err(),
        "the layer is not a sound archive: the archive can be read in two ways: a lone block of zeros",
    );
}

#[test]
fn the_size_of_the_extended_header_says_where_the_next_entry_is() {
    // A reader that goes by the header alone takes the data for an entry.
    let smuggled = file("smuggled", "x").bytes();
    let size = smuggled.len().to_string();
    let carrier = Item { size: Some(0), ..file("carrier", &smuggled) };
    let items = [extended(&[("size", size.as_bytes())]), carrier, file("last", "")];
    let listed = attempt(&pack(&items), Limits::default()).unwrap();
    let names: Vec<&str> = listed.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["carrier", "last"]);
}

#[test]
fn broken_archives_are_refused() {
    let whole = pack(&[file("a", "some data")]);
    let mut wrong_sum = whole.clone();
    wrong_sum[0] = b'b';
    let mut no_number = whole.clone();
    no_number[100..107].copy_from_slice(b"0009xyz");
    seal(&mut no_number[..BLOCK]);
    let rows = [
        (&whole[..100], "the archive ends in the middle of an entry"),
        (&whole[..BLOCK + 3], "the archive ends in the middle of an entry"),
        (&whole[..BLOCK + 100], "the archive ends in the middle of an entry"),
        (&wrong_sum[..], "a header of the archive has a wrong checksum"),
        (&no_number[..], "the mode in a header of the archive is not a number that fits"),
        (&[b'x'; BLOCK][..], "the checksum in a header of the archive is not a number that fits"),
    ];
    for (archive, expected) in rows {
        let expected = format!("the layer is not a sound archive: {expected}");
        assert_eq!(attempt(archive, Limits::default()), Err(expected));
    }
}

#[test]
fn every_limit_is_kept() {
    let limits = Limits {
        entries: 3,
        bytes: 8192,
        ratio: 2,
        ratio_from: 4096,
        depth: 4,
        xattrs: 10,
        directories: 100,
    };
    let long_directory = directory("d".repeat(90));
    let rows: &[(&[Item], &str)] = &[
        (&[file("a", ""), file("b", ""), file("c", ""), file("d", "")], "more than 3 entries"),
        (&[file("a/b/c/d", "")], "more than 3 entries"),
        (&[file("a", vec![0; 9000])], "more than 8192 bytes"),
        (&[file("a/b/c/d/e", "")], "a path of more than 4 components"),
        (
            &[extended(&[("SCHILY.xattr.user.a", b"12345")]), file("a", "")],
            "an entry with more than 10 bytes of extended attributes",
        ),
        (&[long_directory], "directories with more than 100 bytes of names"),
    ];
    for (items, expected) in rows {
        let expected = format!("the layer is larger than allowed: {expected}");
        assert_eq!(attempt(&pack(items), limits), Err(expected), "{items:?}");
    }
}

#[test]
fn a_bomb_is_stopped_by_its_ratio() {
    let archive = pack(&[file("zeros", vec![0; 4 << 20])]);
    let limits = Limits { ratio: 100, ratio_from: 1 << 20, ..Limits::default() };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&archive).unwrap();
    let zstandard = zstd::encode_all(&archive[..], 3).unwrap();
    for bomb in [gzip.finish().unwrap(), zstandard] {
        assert_eq!(
            attempt(&bomb, limits).unwrap_err(),
            "the layer is larger than allowed: more than 100 times its compressed size",
        );
    }
}

#[test]
fn names_and_extensions_beyond_what_is_held_in_memory_are_refused() {
    let huge = "x".repeat(2 << 20);
    assert_refused(&[
        (
            &[long(b'L', "x".repeat(5000)), file("a", "")],
            "the layer is not a sound archive: the name of an entry is longer than 4097 bytes",
        ),
        (
            &[extended(&[("path", "/x".repeat(2100).as_bytes())]), file("a", "")],
            "the layer is not a sound archive: the name of an entry is longer than 4096 bytes",
        ),
        (
            &[extended(&[("comment", huge.as_bytes())]), file("a", "")],
            "the layer is not a sound archive: the extended header of an entry is longer than 1048576 bytes",
        ),
        (
            &[Item { size: Some(u64::MAX >> 1), ..item(b'L', "a") }],
            "the layer is not a sound archive: the name of an entry is longer than 4097 bytes",
        ),
    ]);
}

#[test]
fn a_size_near_the_end_of_numbers_is_no_way_around() {
    let items = [extended(&[("size", b"18446744073709551615")]), file("a", "x")];
    let error = attempt(&pack(&items), Limits::default()).unwrap_err();
    assert!(error.contains("ends in the middle") || error.contains("not a number"), "{error}");
}

#[test]
fn a_directory_with_entries_is_not_replaced() {
    assert_refused(&[(
        &[file("a/b", "x"), file("a", "y")],
        r#"the layer replaces the directory "a", which has entries"#,
    )]);
}
