//! Archives at random, made of what has broken other programs.

use std::fs;

use proptest::prelude::*;

use crate::{
    packing::{BLOCK, Item, extended, item, long, pack, seal},
    tree::{is_root, listing, rules, unpack_to},
};

fn name() -> impl Strategy<Value = Vec<u8>> {
    let component = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "c"]),
        1 => prop::sample::select(vec![
            "..", ".", "", "outside", "precious", ".wh.a", ".wh.b", ".wh..wh..opq", "dev", "größe",
        ]),
    ];
    let path = prop::collection::vec(component, 1..4).prop_map(|it| it.join("/"));
    let odd = prop::sample::select(vec![
        "/",
        "./",
        "../outside",
        "/outside",
        "../precious",
        "a/",
        "",
        "../../../../../../tmp",
    ]);
    prop_oneof![5 => path, 1 => odd.prop_map(str::to_owned)].prop_map(String::into_bytes)
}

fn entry() -> impl Strategy<Value = Item> {
    let flag = prop_oneof![
        8 => prop::sample::select(b"01255".to_vec()),
        1 => prop::sample::select(b"\x0034678SZg".to_vec()),
    ];
    let data = prop::collection::vec(any::<u8>(), 0..600);
    let ids = prop_oneof![9 => Just(0), 1 => any::<u64>().prop_map(|it| it >> 20)];
    (flag, name(), name(), data, 0..0o10000_u64, ids).prop_map(
        |(flag, name, target, data, mode, uid)| {
            let data = if matches!(flag, b'0' | b'7' | 0) { data } else { Vec::new() };
            Item { data, target, mode, uid, ..item(flag, name) }
        },
    )
}

fn extension() -> impl Strategy<Value = Item> {
    prop_oneof![
        name().prop_map(|it| long(b'L', it)),
        name().prop_map(|it| long(b'K', it)),
        name().prop_map(|it| extended(&[("path", &it)])),
        name().prop_map(|it| extended(&[("linkpath", &it), ("uid", b"7")])),
        (0..2000_u64).prop_map(|it| extended(&[("size", it.to_string().as_bytes())])),
        Just(extended(&[("SCHILY.xattr.user.a", b"b"), ("mtime", b"-1.5")])),
    ]
}

/// Returns some entries, now and then with an extension before them.
pub(crate) fn items() -> impl Strategy<Value = Vec<Item>> {
    let one = (proptest::option::weighted(0.2, extension()), entry());
    let several = prop::collection::vec(one, 1..12);
    several.prop_map(|pairs| {
        pairs
            .into_iter()
            .flat_map(|(extension, entry)| extension.into_iter().chain([entry]))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_archive_changes_anything_outside_its_directory(
        items in items(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut archive = pack(&items);
        for (index, byte) in damage {
            let at = index.index(archive.len());
            archive[at] = byte;
            let start = at - at % BLOCK;
            seal(&mut archive[start..start + BLOCK]);
        }
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::create_dir_all(folder.path().join("outside/a/b")).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(folder.path().join("precious"), "precious").unwrap();
        fs::write(folder.path().join("outside/precious"), "precious").unwrap();
        fs::write(folder.path().join("outside/a/c"), "precious").unwrap();
        // Whether it is refused is not the question here.
        drop(unpack_to(&archive, &target, &rules()));
        rustix::fs::chmod(&target, rustix::fs::Mode::RWXU).unwrap();
        if is_root() {
            // Anybody else cannot look into all of it.
            let inside = listing(&target);
            prop_assert!(inside.iter().all(|line| !line.contains(" special ")), "{inside:?}");
        }
        images::store::removal::empty(&target).unwrap();
        fs::remove_dir(&target).unwrap();
        let expected = [
            "outside directory 755",
            "outside/a directory 755",
            "outside/a/b directory 755",
            "outside/a/c file 644 1 precious",
            "outside/precious file 644 1 precious",
            "precious file 644 1 precious",
        ];
        prop_assert_eq!(listing(folder.path()), expected);
    }
}
