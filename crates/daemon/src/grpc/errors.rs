//! Errors as gRPC tells them: a status, and in it who says so, why, and about what.

use std::collections::HashMap;

use api::{agbox::DOMAIN, errors::agbox::Reason};
use engine::{
    images::ImageError,
    sandboxes::{FieldProblem, SandboxError},
};
use model::resources::Resource;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::invalid::Invalid;

/// The longest message and the longest value of the metadata. They go out as headers, which have
/// little room, and may repeat what a caller sent.
const MAX_MESSAGE: usize = 1024;
const MAX_VALUE: usize = 256;

const FAILED: &str = "the server failed; its log says more";

/// Makes the status of a reason. `about` are the names and values in its metadata.
pub(crate) fn status(reason: Reason, message: impl Into<String>, about: &[(&str, &str)]) -> Status {
    let metadata: HashMap<String, String> = about
        .iter()
        .map(|(name, value)| ((*name).to_owned(), cut((*value).to_owned(), MAX_VALUE)))
        .collect();
    let details = ErrorDetails::with_error_info(reason.wire_name(), DOMAIN, metadata);
    Status::with_error_details(reason.code(), cut(message.into(), MAX_MESSAGE), details)
}

fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
    text
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Self {
        status(invalid.reason, invalid.to_string(), &[("field", &invalid.field)])
    }
}

/// What was asked of a sandbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About<'call> {
    Life,
    /// To run a command, which may have an id of the caller's own.
    Exec(&'call str),
    /// To tell events after this one.
    Events(u64),
}

/// Tells why something cannot be done with a sandbox.
pub(crate) fn of_sandbox(error: &SandboxError, sandbox: &str, about: About<'_>) -> Status {
    let named = [("sandbox_id", sandbox)];
    let message = error.to_string();
    match error {
        SandboxError::NotFound => status(Reason::SandboxNotFound, message, &named),
        SandboxError::AlreadyExists => status(Reason::SandboxIdAlreadyExists, message, &named),
        SandboxError::Refused(_) => match about {
            About::Exec(_) => status(Reason::SandboxNotReady, message, &named),
            About::Life | About::Events(_) => status(Reason::SandboxInvalidState, message, &named),
        },
        SandboxError::OutOfRange { asked, earliest, latest } => {
            let from = match about {
                About::Events(from) => from,
                About::Life | About::Exec(_) => asked.0,
            };
            let (from, oldest) = (from.to_string(), earliest.to_string());
            let latest = latest.to_string();
            let more = [
                ("sandbox_id", sandbox),
                ("from_sequence", from.as_str()),
                ("oldest_sequence", oldest.as_str()),
                ("latest_sequence", latest.as_str()),
            ];
            status(Reason::SandboxEventSequenceExpired, message, &more)
        }
        other => match about {
            About::Exec(exec) => of_exec(other, exec),
            About::Life | About::Events(_) => of_exec(other, ""),
        },
    }
}

/// Tells why something cannot be done with a command.
pub(crate) fn of_exec(error: &SandboxError, exec: &str) -> Status {
    let named = [("exec_id", exec)];
    let message = error.to_string();
    match error {
        SandboxError::NotFound | SandboxError::ExecNotFound | SandboxError::ShellNotFound => {
            status(Reason::ExecNotFound, message, &named)
        }
        SandboxError::ExecExists => status(Reason::ExecIdAlreadyExists, message, &named),
        SandboxError::ExecEnded | SandboxError::OutputGone | SandboxError::Refused(_) => {
            status(Reason::ExecAlreadyTerminal, message, &named)
        }
        SandboxError::Invalid(_) | SandboxError::Snapshot(_) => {
            status(Reason::InvalidArgument, message, &[])
        }
        SandboxError::Field { field, problem, .. } => {
            let reason = match problem {
                FieldProblem::Invalid => Reason::InvalidArgument,
                FieldProblem::NotSupported => Reason::NotSupported,
            };
            status(reason, message, &[("field", field)])
        }
        SandboxError::Resource(refusal) => {
            status(Reason::InvalidArgument, message, &[("field", field_of(refusal.resource))])
        }
        SandboxError::Quota(_) | SandboxError::TooMany(_) => {
            status(Reason::ResourceExhausted, message, &[])
        }
        SandboxError::Unavailable(_) | SandboxError::Provider(_) => {
            status(Reason::Unavailable, message, &[])
        }
        SandboxError::ProviderDisabled(_) => status(Reason::NotSupported, message, &[]),
        SandboxError::Image(error) => of_image(error, "image"),
        // It has been said where it broke.
        SandboxError::BrokenOff => status(Reason::Internal, message, &[]),
        // No call of this service is about snapshots.
        SandboxError::AlreadyExists
        | SandboxError::SnapshotNotFound
        | SandboxError::SnapshotExists
        | SandboxError::OutOfRange { .. }
        | SandboxError::Store(_) => {
            let source = std::error::Error::source(error);
            tracing::error!(%error, ?source, "a call cannot be answered");
            status(Reason::Internal, FAILED, &[])
        }
    }
}

/// Returns the field of a request that limits this resource.
fn field_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Memory => "memory_limit",
        Resource::Cpu => "cpu_limit",
        Resource::Disk => "disk_limit",
        // No field of this service asks for it.
        Resource::Processes => "",
    }
}

/// Tells why an image, which this field names, cannot be had or removed.
pub(crate) fn of_image(error: &ImageError, field: &str) -> Status {
    let reason = image_reason(error);
    let (in_field, image) = match error {
        ImageError::Reference(_) | ImageError::NotAllowed(_) | ImageError::InPlace { .. } => {
            (true, None)
        }
        ImageError::Refused { image, .. }
        | ImageError::Unsupported { image, .. }
        | ImageError::Unreadable { image, .. } => (true, Some(image)),
        ImageError::NotFound { image, .. }
        | ImageError::Unknown { image }
        | ImageError::InUse { image }
        | ImageError::Full { image, .. }
        | ImageError::Interrupted { image } => (false, Some(image)),
        ImageError::Unauthorized { .. }
        | ImageError::RegistryNotAllowed { .. }
        | ImageError::Unreachable { .. }
        | ImageError::Store { .. }
        | ImageError::Worker { .. }
        | ImageError::Busy
        | ImageError::SpawnerGone => (false, None),
    };
    let field = in_field.then_some(("field", field));
    let image = image.map(|image| ("image", image.as_str()));
    let about: Vec<_> = field.into_iter().chain(image).collect();
    status(reason, error.to_string(), &about)
}

/// Returns why something is not to be had of an image.
pub(crate) fn image_reason(error: &ImageError) -> Reason {
    match error {
        ImageError::Reference(_) | ImageError::InPlace { .. } => Reason::InvalidArgument,
        ImageError::NotAllowed(_) | ImageError::RegistryNotAllowed { .. } => {
            Reason::PermissionDenied
        }
        ImageError::NotFound { .. } | ImageError::Unknown { .. } => Reason::ImageNotFound,
        ImageError::InUse { .. } => Reason::ImageInUse,
        ImageError::Refused { .. }
        | ImageError::Unsupported { .. }
        | ImageError::Unreadable { .. }
        | ImageError::Unauthorized { .. } => Reason::ImageUnusable,
        ImageError::Busy | ImageError::Full { .. } => Reason::ResourceExhausted,
        ImageError::Unreachable { .. }
        | ImageError::Store { .. }
        | ImageError::Interrupted { .. }
        | ImageError::Worker { .. }
        | ImageError::SpawnerGone => Reason::Unavailable,
    }
}

/// Completes what the library says by itself, which has no details: that a message cannot be read,
/// that it is too large, that there is no such method.
pub(crate) fn complete(own: &Status) -> Status {
    match own.code() {
        Code::Internal => status(Reason::InvalidArgument, "the message cannot be read", &[]),
        Code::OutOfRange | Code::ResourceExhausted => {
            status(Reason::MessageTooLarge, "the message is too large", &[])
        }
        Code::Unimplemented => {
            let message = "there is no such method, or not with this compression";
            status(Reason::Unimplemented, message, &[])
        }
        // Of the health service, which has a contract of its own.
        Code::NotFound => own.clone(),
        Code::Cancelled | Code::DeadlineExceeded => {
            status(Reason::DeadlineExceeded, "the call did not come to its end", &[])
        }
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => status(Reason::Internal, FAILED, &[]),
    }
}

#[cfg(test)]
mod tests {
    use model::{event::Sequence, life::Phase, sandbox::Refusal};

    use super::*;

    fn line(status: &Status) -> String {
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(info.domain, "agents-sandbox");
        let mut metadata: Vec<_> =
            info.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
        metadata.sort();
        format!("{:?} {} {}", status.code(), info.reason, metadata.join(","))
    }

    #[test]
    fn every_error_has_its_status_reason_and_metadata() {
        let refused = || SandboxError::Refused(Refusal::WrongPhase(Phase::Stopped));
        let out_of_range = SandboxError::OutOfRange {
            asked: Sequence(9),
            earliest: Sequence(1),
            latest: Sequence(5),
        };
        let rows = [
            (SandboxError::NotFound, About::Life, "NotFound SANDBOX_NOT_FOUND sandbox_id=box"),
            (
                SandboxError::AlreadyExists,
                About::Life,
                "AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id=box",
            ),
            (refused(), About::Life, "FailedPrecondition SANDBOX_INVALID_STATE sandbox_id=box"),
            (refused(), About::Exec("x"), "FailedPrecondition SANDBOX_NOT_READY sandbox_id=box"),
            (
                out_of_range,
                About::Events(9),
                "OutOfRange SANDBOX_EVENT_SEQUENCE_EXPIRED \
                 from_sequence=9,latest_sequence=5,oldest_sequence=1,sandbox_id=box",
            ),
            (
                SandboxError::ExecExists,
                About::Exec("run-1"),
                "AlreadyExists EXEC_ID_ALREADY_EXISTS exec_id=run-1",
            ),
            (SandboxError::Invalid("no".into()), About::Life, "InvalidArgument INVALID_ARGUMENT "),
            (
                SandboxError::Field {
                    field: "ports[0].protocol".into(),
                    problem: FieldProblem::NotSupported,
                    message: "no".into(),
                },
                About::Life,
                "InvalidArgument NOT_SUPPORTED field=ports[0].protocol",
            ),
            (SandboxError::Unavailable("no".into()), About::Life, "Unavailable UNAVAILABLE "),
            (SandboxError::BrokenOff, About::Life, "Internal INTERNAL "),
            (
                ImageError::InUse { image: "a".into() }.into(),
                About::Life,
                "FailedPrecondition IMAGE_IN_USE image=a",
            ),
            (
                ImageError::NotAllowed(engine::images::Refusal::Prefix).into(),
                About::Life,
                "PermissionDenied PERMISSION_DENIED field=image",
            ),
            (
                SandboxError::Store(store::StoreError::Cursor),
                About::Exec("x"),
                "Internal INTERNAL ",
            ),
        ];
        for (error, about, expected) in rows {
            assert_eq!(line(&of_sandbox(&error, "box", about)), expected);
        }
        let rows = [
            (SandboxError::ExecNotFound, "NotFound EXEC_NOT_FOUND exec_id=run-1"),
            (SandboxError::ExecEnded, "FailedPrecondition EXEC_ALREADY_TERMINAL exec_id=run-1"),
        ];
        for (error, expected) in rows {
            assert_eq!(line(&of_exec(&error, "run-1")), expected);
        }
    }

    #[test]
    fn long_texts_of_callers_are_cut() {
        let name = "é".repeat(100_000);
        let status = status(Reason::SandboxNotFound, name.clone(), &[("sandbox_id", &name)]);
        assert!(status.message().len() <= MAX_MESSAGE);
        assert!(status.details().len() < 2048, "{}", status.details().len());
    }

    #[test]
    fn what_the_library_says_gets_details() {
        let rows = [
            (Code::Internal, "InvalidArgument INVALID_ARGUMENT "),
            (Code::OutOfRange, "ResourceExhausted MESSAGE_TOO_LARGE "),
            (Code::Unimplemented, "Unimplemented UNIMPLEMENTED "),
            (Code::Unknown, "Internal INTERNAL "),
        ];
        for (code, expected) in rows {
            assert_eq!(line(&complete(&Status::new(code, ""))), expected);
        }
    }
}
