//! The reasons of `agbox.v1`: what its errors say in `google.rpc.ErrorInfo`.

use tonic::Code;

/// What went wrong with a call, in a word that programs can act on. Reasons are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is no such sandbox, or it is not yours.
    SandboxNotFound,
    /// The caller's own id was given to a sandbox before.
    SandboxIdAlreadyExists,
    /// The sandbox is not READY, so that no command can run in it.
    SandboxNotReady,
    /// The sandbox is not in a state from which it can be stopped or resumed.
    SandboxInvalidState,
    /// The events that were asked for are not kept any more, or have not happened yet.
    SandboxEventSequenceExpired,
    /// There is no such command, or it is not yours.
    ExecNotFound,
    /// The caller's own id was given to a command before.
    ExecIdAlreadyExists,
    /// The command has ended already.
    ExecAlreadyTerminal,
    /// A field is missing, malformed or out of range; the message names it.
    InvalidArgument,
    /// No image was named, and there is no default.
    ImageRequired,
    /// There is no image of this name here, or in the registry that it names.
    ImageNotFound,
    /// A sandbox is made from the image.
    ImageInUse,
    /// The image cannot be used: it is damaged, hostile, or made for another machine.
    ImageUnusable,
    /// What was asked for is not to be had on this server.
    NotSupported,
    /// The message is larger than allowed.
    MessageTooLarge,
    /// There is no such method.
    Unimplemented,
    /// No valid API key came with the call, or it was revoked.
    Unauthenticated,
    /// The caller is known and may not do this.
    PermissionDenied,
    /// The call took longer than its deadline.
    DeadlineExceeded,
    /// There is no room for it now.
    ResourceExhausted,
    /// The server is starting, stopping or cannot write.
    Unavailable,
    /// The server failed in a way that it did not expect.
    Internal,
}

impl Reason {
    /// Every reason, in the order of the table.
    pub const ALL: [Self; 22] = [
        Self::SandboxNotFound,
        Self::SandboxIdAlreadyExists,
        Self::SandboxNotReady,
        Self::SandboxInvalidState,
        Self::SandboxEventSequenceExpired,
        Self::ExecNotFound,
        Self::ExecIdAlreadyExists,
        Self::ExecAlreadyTerminal,
        Self::InvalidArgument,
        Self::ImageRequired,
        Self::ImageNotFound,
        Self::ImageInUse,
        Self::ImageUnusable,
        Self::NotSupported,
        Self::MessageTooLarge,
        Self::Unimplemented,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::DeadlineExceeded,
        Self::ResourceExhausted,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Returns wire name and gRPC status: the whole table.
    pub const fn row(self) -> (&'static str, Code) {
        match self {
            Self::SandboxNotFound => ("SANDBOX_NOT_FOUND", Code::NotFound),
            Self::SandboxIdAlreadyExists => ("SANDBOX_ID_ALREADY_EXISTS", Code::AlreadyExists),
            Self::SandboxNotReady => ("SANDBOX_NOT_READY", Code::FailedPrecondition),
            Self::SandboxInvalidState => ("SANDBOX_INVALID_STATE", Code::FailedPrecondition),
            Self::SandboxEventSequenceExpired => {
                ("SANDBOX_EVENT_SEQUENCE_EXPIRED", Code::OutOfRange)
            }
            Self::ExecNotFound => ("EXEC_NOT_FOUND", Code::NotFound),
            Self::ExecIdAlreadyExists => ("EXEC_ID_ALREADY_EXISTS", Code::AlreadyExists),
            Self::ExecAlreadyTerminal => ("EXEC_ALREADY_TERMINAL", Code::FailedPrecondition),
            Self::InvalidArgument => ("INVALID_ARGUMENT", Code::InvalidArgument),
            Self::ImageRequired => ("IMAGE_REQUIRED", Code::InvalidArgument),
            Self::ImageNotFound => ("IMAGE_NOT_FOUND", Code::NotFound),
            Self::ImageInUse => ("IMAGE_IN_USE", Code::FailedPrecondition),
            Self::ImageUnusable => ("IMAGE_UNUSABLE", Code::FailedPrecondition),
            Self::NotSupported => ("NOT_SUPPORTED", Code::InvalidArgument),
            Self::MessageTooLarge => ("MESSAGE_TOO_LARGE", Code::ResourceExhausted),
            Self::Unimplemented => ("UNIMPLEMENTED", Code::Unimplemented),
            Self::Unauthenticated => ("UNAUTHENTICATED", Code::Unauthenticated),
            Self::PermissionDenied => ("PERMISSION_DENIED", Code::PermissionDenied),
            Self::DeadlineExceeded => ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
            Self::ResourceExhausted => ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
            Self::Unavailable => ("UNAVAILABLE", Code::Unavailable),
            Self::Internal => ("INTERNAL", Code::Internal),
        }
    }

    /// Returns the name in `ErrorInfo.reason`.
    pub const fn wire_name(self) -> &'static str {
        self.row().0
    }

    /// Returns the status that the call ends with.
    pub const fn code(self) -> Code {
        self.row().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_of_the_contract_have_its_names_and_statuses() {
        let table = Reason::ALL.map(|reason| format!("{} {:?}", reason.wire_name(), reason.code()));
        let expected = [
            "SANDBOX_NOT_FOUND NotFound",
            "SANDBOX_ID_ALREADY_EXISTS AlreadyExists",
            "SANDBOX_NOT_READY FailedPrecondition",
            "SANDBOX_INVALID_STATE FailedPrecondition",
            "SANDBOX_EVENT_SEQUENCE_EXPIRED OutOfRange",
            "EXEC_NOT_FOUND NotFound",
            "EXEC_ID_ALREADY_EXISTS AlreadyExists",
            "EXEC_ALREADY_TERMINAL FailedPrecondition",
        ];
        assert_eq!(table[..expected.len()], expected.map(str::to_owned));
    }
}
