//! `ringfence shell` and `ringfence exec -it`, at a terminal.

use crate::{command::signal, keeper::Keeper, pty::Pty};

impl Keeper {
    fn open_shell(&self, more: &[&str]) -> Pty {
        Pty::start(&self.ringfence(&[&["shell", "demo"], more].concat()), 30, 100)
    }
}

/// Waits in the shell until its terminal has this size.
fn wait_for_size(size: &str) -> String {
    format!("until [ \"$(stty size)\" = '{size}' ]; do :; done; echo si''ze {size}\r")
}

#[test]
fn a_shell_is_left_and_come_back_to_and_its_exit_code_is_ours() {
    let keeper = Keeper::with_demo();
    let mut here = keeper.open_shell(&[]);
    here.type_in(&wait_for_size("30 100"));
    here.until("size 30 100");
    here.resize(40, 120);
    here.type_in(&wait_for_size("40 120"));
    here.until("size 40 120");
    here.type_in("echo ke''pt\x1d");
    here.until("ringfence: left; `ringfence shell demo` comes back\r\n");
    assert_eq!(here.end(), Some(0));

    // What was typed before the key is there, and the terminal has this one's size.
    let mut again = keeper.open_shell(&[]);
    again.until("size 40 120");
    again.type_in(&format!("\r{}", wait_for_size("30 100")));
    again.until("kept");
    again.until("size 30 100");
    again.type_in("exit 7\r");
    assert_eq!(again.end(), Some(7));

    let mut third = keeper.open_shell(&["--name", "other", "--detach-key", "none"]);
    // There it is a key of the shell's own, which takes the next one with it.
    third.type_in("\x1d kill -9 $$\r");
    assert_eq!(third.end(), Some(137));
}

#[test]
fn who_observes_sees_everything_and_types_nothing() {
    let keeper = Keeper::with_demo();
    let mut none = keeper.open_shell(&["--observe"]);
    none.until("CAPABILITY_DENIED");
    assert_eq!(none.end(), Some(125));
    let mut writer = keeper.open_shell(&[]);
    writer.type_in("echo be''gun\r");
    writer.until("begun");
    let mut watcher = keeper.open_shell(&["--observe"]);
    watcher.until("begun");
    watcher.type_in("echo ty''ped\r");
    watcher.resize(10, 20);
    writer.type_in("echo go''es on $(stty size)\r");
    assert!(!watcher.until("goes on 30 100").contains("typed"));
    watcher.type_in("\x1d");
    assert_eq!(watcher.end(), Some(0));
    writer.type_in("exit\r");
    assert_eq!(writer.end(), Some(0));
}

#[test]
fn a_killed_server_is_waited_for_and_the_screen_is_shown_again() {
    let mut keeper = Keeper::with_demo();
    let mut here = keeper.open_shell(&[]);
    here.type_in("echo dr''awn\r");
    here.until("drawn");
    keeper.kill();
    here.until("connecting again");
    // What is typed meanwhile waits.
    here.type_in("echo st''ill\r");
    keeper.start_again();
    here.until("drawn");
    here.until("still");
    keeper.kill();
    here.until("connecting again");
    here.type_in("\x1d");
    here.until("comes back");
    assert_eq!(here.end(), Some(0));
    keeper.start_again();
}

#[test]
fn a_signal_ends_it_with_a_terminal_as_it_was_and_without_one_it_does_not_begin() {
    let keeper = Keeper::with_demo();
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let mut here = keeper.open_shell(&[]);
        here.type_in("echo he''re\r");
        here.until("here");
        signal(here.child.id(), name);
        assert_eq!(here.end(), Some(code), "{name}");
    }
    let said = keeper.ask(&["shell", "demo"]);
    assert!(said.code == Some(125) && said.err.contains("ringfence exec"), "{said:?}");
    let mut missing = Pty::start(&keeper.ringfence(&["shell", "nobody"]), 24, 80);
    missing.until("NOT_FOUND");
    assert_eq!(missing.end(), Some(125));
}

#[test]
fn a_command_with_a_terminal_has_its_size_its_keys_and_its_exit_code() {
    let keeper = Keeper::with_demo();
    // The short reads let the trap run wherever the key meets the script.
    let script = "trap 'echo interrupted' INT; stty size; \
                  until read -t 0.2 line; do :; done; echo \"got $line\"; \
                  until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; exit 6";
    let command = keeper.ringfence(&["exec", "-it", "demo", "--", "bash", "-c", script]);
    let mut here = Pty::start(&command, 30, 100);
    here.until("30 100");
    // It is a key of the command's, and does not cancel it.
    here.type_in("\x03");
    here.until("interrupted");
    here.type_in("typed\r");
    here.until("got typed");
    here.resize(40, 120);
    assert_eq!(here.end(), Some(6));

    let mut alone = Pty::start(&keeper.ringfence(&["exec", "-t", "demo", "--", "tty"]), 24, 80);
    alone.until("/dev/pts/");
    assert_eq!(alone.end(), Some(0));
    let piped = keeper.ask(&["exec", "-it", "demo", "--", "true"]);
    assert!(piped.code == Some(125) && piped.err.contains("needs a terminal"), "{piped:?}");
}

#[test]
fn a_users_key_opens_the_shells_of_its_own_sandboxes() {
    let keeper = Keeper::with_demo();
    let key = keeper.ask(&["key", "create", "someone", "--role", "user"]).out.trim().to_owned();
    let with_key = |arguments: &[&str]| {
        let mut command = keeper.ringfence(arguments);
        command.env("RINGFENCE_API_KEY", &key);
        command
    };
    let mut here = Pty::start(&with_key(&["shell", "demo"]), 24, 80);
    here.type_in("echo op''ened; exit 3\r");
    here.until("opened");
    assert_eq!(here.end(), Some(3));
    let minted = with_key(&["token", "mint", "--sandbox", "demo"]).output().unwrap();
    assert!(minted.status.success(), "{minted:?}");
    let ran = with_key(&["exec", "demo", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(ran.stdout, b"ran\n", "{ran:?}");
    // What is for admins stays so.
    let refused = with_key(&["token", "rotate", "demo"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
}
