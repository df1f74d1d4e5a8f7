//! How a command stands, in the words of clients.

use api::exec::{Exit, Extent, Shown, Usage};
use engine::sandboxes::attach::{self, Attached};
use model::{
    exec::{ExecEnd, ExecState, Loss},
    execution,
};
use rustix::process::Signal;

use crate::clock;

/// Says how a command ended.
pub(in crate::dataplane) fn exit(end: &ExecEnd, usage: Option<attach::Usage>) -> Exit {
    let told = |reason, message: Option<String>| Exit {
        exit_code: None,
        signal: None,
        reason,
        message,
        usage: usage.map(self::usage),
    };
    match end {
        ExecEnd::Exited(execution::Exit::Code(code)) => {
            Exit { exit_code: Some(*code), ..told("exited", None) }
        }
        ExecEnd::Exited(execution::Exit::Signal(number)) => {
            Exit { signal: Some(signal(*number)), ..told("signaled", None) }
        }
        ExecEnd::ExitedCut { exit: how, lost, .. } => Exit {
            message: Some(format!("{lost} bytes of its output could not be kept")),
            ..exit(&ExecEnd::Exited(*how), usage)
        },
        ExecEnd::Cancelled => told("cancelled", None),
        ExecEnd::TimedOut { .. } => {
            told("timed_out", Some("it was killed at the end of its time".to_owned()))
        }
        ExecEnd::NotStarted { message, exit_code } => {
            Exit { exit_code: *exit_code, ..told("not_started", Some(message.clone())) }
        }
        ExecEnd::Lost(loss) => told("lost", Some(lost(*loss).to_owned())),
    }
}

fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::SandboxFailed => "the sandbox failed",
        Loss::SandboxStopped => "the sandbox was stopped",
        Loss::SandboxDeleted => "the sandbox was deleted",
        Loss::SupervisorLost => "the supervisor of the sandbox was lost",
        Loss::HostRebooted => "the machine was restarted",
    }
}

fn usage(usage: attach::Usage) -> Usage {
    Usage {
        cpu_time_ms: u64::try_from(usage.cpu_time.as_millis()).unwrap_or(u64::MAX),
        peak_memory_bytes: usage.peak_memory,
    }
}

/// What LangSmith's clients are told of an end: a code, or an error of this type.
pub(in crate::dataplane) enum Told {
    Code {
        code: i32,
        signal: Option<String>,
        /// What a shell would have written to stderr, of a command that could not be started.
        message: Option<String>,
    },
    Error {
        kind: &'static str,
        message: String,
    },
}

/// Says how a command ended as a shell would, which has a number for every end that it knows.
pub(in crate::dataplane) fn told(end: &ExecEnd) -> Told {
    match end {
        ExecEnd::Exited(how) | ExecEnd::ExitedCut { exit: how, .. } => match how {
            execution::Exit::Code(code) => Told::Code { code: *code, signal: None, message: None },
            execution::Exit::Signal(number) => {
                let signal = Some(signal(*number));
                Told::Code { code: 128_i32.saturating_add(*number), signal, message: None }
            }
        },
        ExecEnd::TimedOut { .. } => Told::Error {
            kind: "CommandTimeout",
            message: "the command was killed at the end of its time".to_owned(),
        },
        ExecEnd::Cancelled => {
            Told::Error { kind: "CommandError", message: "the command was cancelled".to_owned() }
        }
        ExecEnd::NotStarted { message, exit_code: Some(code) } => {
            Told::Code { code: *code, signal: None, message: Some(message.clone()) }
        }
        ExecEnd::NotStarted { message, exit_code: None } => Told::Error {
            kind: "CommandError",
            message: format!("the command could not be started: {message}"),
        },
        ExecEnd::Lost(loss) => Told::Error {
            kind: "CommandError",
            message: format!("how the command ended cannot be known: {}", lost(*loss)),
        },
    }
}

/// Shows a command that is watched.
pub(super) fn shown(attached: &Attached) -> Shown {
    let (exec, flow) = (attached.exec(), attached.flow());
    let time = |at: model::units::Timestamp| clock::text(at.into());
    let [stdout, stderr] = flow.extents.map(|extent| {
        (!flow.is_cleared).then_some(Extent { start: extent.start, end: extent.end })
    });
    let (state, end) = match (&exec.life.state, &flow.end) {
        (_, Some(end)) | (ExecState::Ended(end), None) => ("ended", Some(end)),
        (ExecState::Running, None) => ("running", None),
    };
    Shown {
        exec_id: exec.id.to_string(),
        state,
        started_at: time(exec.life.started_at),
        ended_at: exec.life.ended_at.map(time),
        exit: end.map(|end| exit(end, None)),
        stdout,
        stderr,
    }
}

/// Returns the name of a signal.
fn signal(number: i32) -> String {
    let rows = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let known = rows.iter().find(|(known, _)| known.as_raw() == number);
    known.map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned())
}
