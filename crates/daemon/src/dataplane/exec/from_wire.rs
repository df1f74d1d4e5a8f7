//! Commands as clients ask for them, in our own words.

use std::time::Duration;

use api::{
    errors::ErrorCode,
    exec::{Command, OnFull as AskedOnFull, Start, Stdin},
    langsmith::{Execute, RunConfig},
    shell,
};
use engine::sandboxes::shells::ShellSpec;
use model::{
    ids::ExecId,
    spec::{ElseIn, ExecSpec, Input, OnFull, TerminalSize, Variables},
};
use rustix::process::Signal;

use crate::{dataplane::conversation::session, http::problem::ApiError};

/// What texts for a shell are run with.
const SHELL: &str = "/bin/sh";
/// The same for those who expect it so.
const BASH: &str = "/bin/bash";

/// How long a finished command stays readable, and a running one may be left alone, for LangSmith's
/// clients.
const TTL: Duration = Duration::from_mins(10);
const IDLE: Duration = Duration::from_mins(5);

/// Longer than anything here lasts.
const LONGEST: f64 = 366.0 * 24.0 * 3600.0;

/// The most variables of a command, and what a name and a value may take.
const MAX_VARIABLES: usize = 256;
const MAX_NAME: usize = 256;
const MAX_VALUE: usize = 32 << 10;

/// The longest text that is one argument; the kernel takes 128 KiB at most.
const MAX_ARGUMENT: usize = 100 << 10;

/// Shells that can put a text together from several arguments.
const POSIX_SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Returns the command that has a shell run a text. One that is too long for an argument comes as several,
/// which the shell puts together.
pub(crate) fn for_shell(shell: &str, text: &str) -> Vec<String> {
    let name = shell.rsplit('/').next().unwrap_or(shell);
    if text.len() <= MAX_ARGUMENT || !POSIX_SHELLS.contains(&name) {
        return vec![shell.to_owned(), "-c".to_owned(), text.to_owned()];
    }
    let parts = parts(text);
    let whole: String = (1..=parts.len()).map(|number| format!("${{{number}}}")).collect();
    // The text finds no arguments, as it would as one.
    let script = format!("eval \"shift $#; {whole}\"");
    let head = [shell.to_owned(), "-c".to_owned(), script, shell.to_owned()];
    head.into_iter().chain(parts).collect()
}

/// Cuts a text into pieces that are short enough for an argument.
fn parts(mut text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (part, rest) = text.split_at(text.floor_char_boundary(MAX_ARGUMENT));
        parts.push(part.to_owned());
        text = rest;
    }
    parts
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message.into())
}

/// Returns the id that a caller gave a command.
pub(in crate::dataplane) fn exec_id(text: Option<&str>) -> Result<Option<ExecId>, ApiError> {
    text.map(|text| text.parse::<ExecId>().map_err(|error| invalid(error.to_string()))).transpose()
}

/// Returns a command of the session protocol.
pub(super) fn exec(start: &Start) -> Result<ExecSpec, ApiError> {
    let command = match &start.command {
        None => return Err(invalid("command is missing")),
        Some(Command::Text(text)) => {
            let shell = start.shell.as_deref().unwrap_or(SHELL);
            for_shell(shell, text)
        }
        Some(Command::Arguments(_)) if start.shell.is_some() => {
            return Err(invalid("a shell runs a text: give the command as one, or no shell"));
        }
        Some(Command::Arguments(arguments)) => arguments.clone(),
    };
    let unattended = match (start.kill_on_disconnect, start.idle_timeout_seconds) {
        (true, _) => Some(Duration::ZERO),
        (false, None) => None,
        (false, Some(value)) => Some(seconds("idle_timeout_seconds", value)?),
    };
    let limit = |name, value: Option<f64>| value.map(|value| seconds(name, value)).transpose();
    Ok(ExecSpec {
        command,
        working_directory: directory(start.cwd.as_deref())?,
        else_in: ElseIn::Workspace,
        env: variables(start.env.clone())?,
        user: start.user.clone(),
        input: match (start.stdin, &start.input) {
            (Some(Stdin::Closed), None) => Input::Closed,
            (Some(Stdin::Open) | None, _) | (Some(Stdin::Closed), Some(_)) => Input::Open,
        },
        terminal: start.tty.map(|size| TerminalSize::clamped(size.rows, size.cols)),
        timeout: limit("timeout_seconds", start.timeout_seconds)?,
        unattended,
        readable: limit("ttl_seconds", start.ttl_seconds)?,
        on_full: on_full(start.on_full),
        shell: None,
    })
}

pub(super) fn on_full(asked: Option<AskedOnFull>) -> OnFull {
    match asked.unwrap_or_default() {
        AskedOnFull::Wait => OnFull::Wait,
        AskedOnFull::Drop => OnFull::Drop,
    }
}

/// Returns a command of LangSmith's clients.
pub(super) fn execute(asked: &Execute) -> Result<ExecSpec, ApiError> {
    if asked.command.is_empty() {
        return Err(invalid("command is missing"));
    }
    let RunConfig { user, work_dir, env_vars } = match &asked.run_config {
        Some(_) if asked.env.is_some() || asked.cwd.is_some() => {
            return Err(invalid("give run_config, or env and cwd, not both"));
        }
        Some(config) => config.clone(),
        None => RunConfig { user: None, work_dir: asked.cwd.clone(), env_vars: asked.env.clone() },
    };
    let shell = asked.shell.as_deref().unwrap_or(BASH);
    let timeout = asked.timeout_seconds.or(asked.timeout_secs);
    let timeout = unless_never("timeout_seconds", timeout, Never::AtZero)?;
    let old = unless_never("timeout", asked.timeout, Never::AtZero)?;
    let idle = unless_never("idle_timeout_seconds", asked.idle_timeout_seconds, Never::BelowZero)?;
    let idle = if asked.idle_timeout_seconds.is_none() { Some(IDLE) } else { idle };
    // A shell that somebody sits at is not cut off by the time that the old clients always send.
    let is_bare_shell = asked.command == shell;
    let (timeout, idle) = match old {
        Some(old) if is_bare_shell => (timeout, Some(old)),
        old => (timeout.or(old), idle),
    };
    let ttl = unless_never("ttl_seconds", asked.ttl_seconds, Never::BelowZero)?;
    Ok(ExecSpec {
        command: for_shell(shell, &asked.command),
        working_directory: directory(work_dir.as_deref())?,
        else_in: ElseIn::Home,
        env: variables(env_vars.unwrap_or_default())?,
        user: user.filter(|user| !user.is_empty()),
        input: if asked.close_stdin { Input::Closed } else { Input::Open },
        terminal: asked.pty.then_some(TerminalSize::USUAL),
        timeout,
        unattended: if asked.kill_on_disconnect { Some(Duration::ZERO) } else { idle },
        readable: if asked.ttl_seconds.is_none() { Some(TTL) } else { ttl },
        on_full: OnFull::Wait,
        shell: None,
    })
}

/// Returns a shell as it is to be started, if it is not there.
pub(in crate::dataplane) fn shell(start: &shell::Start) -> Result<ShellSpec, ApiError> {
    let size = match (start.rows, start.cols) {
        (None, None) => None,
        (Some(rows), Some(cols)) => {
            Some(session::size(rows, cols).ok_or_else(|| invalid(session::WRONG_SIZE))?)
        }
        _ => return Err(invalid("rows and cols go together")),
    };
    Ok(ShellSpec {
        command: match &start.command {
            None => Vec::new(),
            Some(Command::Text(text)) => for_shell(SHELL, text),
            Some(Command::Arguments(arguments)) if arguments.is_empty() => {
                return Err(invalid("command is empty"));
            }
            Some(Command::Arguments(arguments)) => arguments.clone(),
        },
        working_directory: directory(start.cwd.as_deref())?,
        env: variables(start.env.clone())?,
        user: start.user.clone(),
        size,
    })
}

/// What means that there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Never {
    AtZero,
    BelowZero,
}

fn unless_never(
    name: &str,
    value: Option<f64>,
    never: Never,
) -> Result<Option<Duration>, ApiError> {
    match (value, never) {
        (None, _) => Ok(None),
        (Some(value), Never::AtZero) if value <= 0.0 => Ok(None),
        (Some(value), Never::BelowZero) if value < 0.0 => Ok(None),
        (Some(value), _) => seconds(name, value).map(Some),
    }
}

fn seconds(name: &str, value: f64) -> Result<Duration, ApiError> {
    if !(0.0..=LONGEST).contains(&value) {
        return Err(invalid(format!("{name} must be from 0 to {LONGEST} seconds")));
    }
    Duration::try_from_secs_f64(value).map_err(|error| invalid(format!("{name}: {error}")))
}

/// A directory is named from the root, and by no link of the kernel's that leads elsewhere.
fn directory(asked: Option<&str>) -> Result<String, ApiError> {
    let asked = asked.unwrap_or_default();
    if asked.contains('\0') || (!asked.is_empty() && !asked.starts_with('/')) {
        return Err(invalid("cwd must be an absolute path"));
    }
    Ok(asked.to_owned())
}

fn variables(asked: Variables) -> Result<Variables, ApiError> {
    if asked.len() > MAX_VARIABLES {
        return Err(invalid(format!("env has more than {MAX_VARIABLES} variables")));
    }
    for (name, value) in &asked {
        let is_name = !name.is_empty() && !name.contains(['=', '\0']) && name.len() <= MAX_NAME;
        if !is_name || value.contains('\0') || value.len() > MAX_VALUE {
            return Err(invalid(format!(
                "env: names have 1 to {MAX_NAME} bytes without \"=\", values at most {MAX_VALUE}, \
                 none of them the character zero"
            )));
        }
    }
    Ok(asked)
}

/// Returns the number of a signal that clients may send.
pub(in crate::dataplane) fn signal(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    let rows = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("TSTP", Signal::TSTP),
        ("WINCH", Signal::WINCH),
    ];
    rows.iter().find(|(known, _)| *known == name).map(|(_, signal)| signal.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(json: &str) -> Execute {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn times_of_langsmiths_clients_mean_what_they_mean_by_them() {
        let second = Duration::from_secs;
        let rows = [
            (r#"{"command":"ls"}"#, None, Some(IDLE), Some(TTL)),
            (
                r#"{"command":"ls","timeout_seconds":60,"idle_timeout_seconds":-1,"ttl_seconds":-1}"#,
                Some(second(60)),
                None,
                None,
            ),
            (
                r#"{"command":"ls","timeout_seconds":0,"idle_timeout_seconds":5,"ttl_seconds":0}"#,
                None,
                Some(second(5)),
                Some(Duration::ZERO),
            ),
            (r#"{"command":"ls","timeout":60}"#, Some(second(60)), Some(IDLE), Some(TTL)),
            (r#"{"command":"ls","timeout_secs":7}"#, Some(second(7)), Some(IDLE), Some(TTL)),
            (
                r#"{"command":"/bin/bash","shell":"/bin/bash","timeout":60}"#,
                None,
                Some(second(60)),
                Some(TTL),
            ),
            (
                r#"{"command":"ls","kill_on_disconnect":true}"#,
                None,
                Some(Duration::ZERO),
                Some(TTL),
            ),
        ];
        for (json, timeout, unattended, readable) in rows {
            let spec = execute(&asked(json)).unwrap();
            let found = (spec.timeout, spec.unattended, spec.readable);
            assert_eq!(found, (timeout, unattended, readable), "{json}");
        }
    }

    #[test]
    fn n11_n12_what_cannot_be_a_command_is_refused() {
        let rows = [
            "{}",
            r#"{"command":""}"#,
            r#"{"command":"ls","cwd":"relative"}"#,
            r#"{"command":"ls","cwd":"/a\u0000"}"#,
            r#"{"command":"ls","env":{"A=B":"1"}}"#,
            r#"{"command":"ls","env":{"A":"\u0000"}}"#,
            r#"{"command":"ls","env":{},"run_config":{}}"#,
            r#"{"command":"ls","timeout_seconds":1e300}"#,
        ];
        for json in rows {
            execute(&asked(json)).unwrap_err();
        }
    }

    #[test]
    fn a_text_is_for_the_shell_and_a_list_is_run_as_it_is() {
        let start = |json: &str| exec(&serde_json::from_str::<Start>(json).unwrap());
        assert_eq!(start(r#"{"command":"a b"}"#).unwrap().command, ["/bin/sh", "-c", "a b"]);
        assert_eq!(start(r#"{"command":["a","b"]}"#).unwrap().command, ["a", "b"]);
        start(r#"{"command":["a"],"shell":"/bin/sh"}"#).unwrap_err();
        start("{}").unwrap_err();
        start(r#"{"command":"a","timeout_seconds":-1}"#).unwrap_err();
    }

    #[test]
    fn a_text_that_is_too_long_for_an_argument_is_run_by_the_shell_as_it_is() {
        for length in [1, MAX_ARGUMENT, 2 * MAX_ARGUMENT, 400 << 10] {
            // What is filled in is wider than a byte, so that a cut has to look where a letter ends.
            let text = format!("printf '%s:%s:%s' \"$#\" \"$0\" '{}'", "ä".repeat(length / 2));
            let command = for_shell("/bin/sh", &text);
            assert!(command.iter().all(|argument| argument.len() < 128 << 10), "{length}");
            let (program, arguments) = command.split_first().unwrap();
            let ran = std::process::Command::new(program).args(arguments).output().unwrap();
            let expected = format!("0:/bin/sh:{}", "ä".repeat(length / 2));
            assert_eq!((ran.status.code(), ran.stdout), (Some(0), expected.into_bytes()));
        }
        let long = "x".repeat(2 * MAX_ARGUMENT);
        assert_eq!(for_shell("/usr/bin/fish", &long), ["/usr/bin/fish", "-c", &long]);
    }

    #[test]
    fn n06_signals_are_known_by_name_and_only_harmless_ones() {
        assert_eq!(signal("SIGINT"), Some(2));
        assert_eq!(signal("TERM"), Some(15));
        for unknown in ["", "0", "9", "KILL; rm", "STOP", "SIGSTOP", "SIG", "sigint", "SEGV"] {
            assert_eq!(signal(unknown), None, "{unknown}");
        }
    }
}
