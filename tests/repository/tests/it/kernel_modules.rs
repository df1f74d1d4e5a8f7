//! How the test machine of `tests/vm` gets its kernel modules.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::checkout;

/// A kernel package as it is unpacked: modules that state what they depend on, some in folders.
fn package(name: &str, modules: &[(&str, &str)]) -> PathBuf {
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(tree.join("kernel/drivers")).expect("the package can be written");
    fs::write(tree.join("modules.builtin"), "kernel/fs/ext4/ext4.ko\nkernel/lib/crc-16.ko\n")
        .expect("the package can be written");
    for (module, depends) in modules {
        let contents = format!("\x7fELF…\0license=GPL\0depends={depends}\0name={module}\0");
        fs::write(tree.join(format!("kernel/drivers/{module}.ko")), contents)
            .expect("the package can be written");
    }
    tree
}

fn take(tree: &Path, wanted: &[&str]) -> Output {
    let script = checkout::root().join("tests/vm/modules");
    Command::new(script)
        .arg(tree)
        .arg(tree.join("out"))
        .args(wanted)
        .output()
        .expect("the script runs")
}

#[test]
fn kernel_modules_are_loaded_after_the_modules_that_they_state() {
    let modules =
        [("disk", "bus,ext4"), ("bus", "ring-buffer,crc_16"), ("ring-buffer", ""), ("unused", "")];
    let tree = package("kernel-in-order", &modules);
    let taken = take(&tree, &["disk", "bus"]);
    assert!(taken.status.success(), "{taken:?}");
    let order = fs::read_to_string(tree.join("out/order")).unwrap();
    assert_eq!(order, "ring_buffer\nbus\ndisk\n");
    for module in order.lines() {
        assert!(tree.join(format!("out/{module}.ko")).exists(), "{module}");
    }
    assert!(!tree.join("out/unused.ko").exists());
}

#[test]
fn a_kernel_module_that_the_package_lacks_is_named_with_the_one_that_needs_it() {
    let tree = package("kernel-without-bus", &[("disk", "bus")]);
    let taken = take(&tree, &["disk"]);
    assert!(!taken.status.success());
    let message = String::from_utf8(taken.stderr).unwrap();
    assert!(message.contains("has no module bus, which disk needs"), "{message}");
}

#[test]
fn a_kernel_module_that_states_no_dependencies_is_refused() {
    let tree = package("kernel-unreadable", &[]);
    fs::write(tree.join("kernel/drivers/disk.ko"), "not a module").unwrap();
    let taken = take(&tree, &["disk"]);
    assert!(!taken.status.success());
    let message = String::from_utf8(taken.stderr).unwrap();
    assert!(message.contains("does not state what it depends on"), "{message}");
}
