//! The messages of `agbox.v1`, made from `proto/agbox/v1/service.proto`, which says what they mean.

#[cfg(test)]
mod surface;

use std::fmt;

/// Messages, and what calls and answers them.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated; what it means is said in the protocol file"
)]
pub mod v1 {
    tonic::include_proto!("agbox.v1");
}

/// The descriptor of the protocol: a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTOR: &[u8] = tonic::include_file_descriptor_set!("agbox.v1");

/// The domain of every error.
pub const DOMAIN: &str = "agents-sandbox";

/// The largest message, in either direction.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The largest `config_yaml`.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Env and commands are the user's: they never appear in a log line.
macro_rules! says_nothing {
    ($($message:ident),*) => {$(
        impl fmt::Debug for v1::$message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        }
    )*};
}

says_nothing!(
    CompanionContainerSpec,
    CreateSpec,
    ExecStatus,
    CreateSandboxRequest,
    CreateExecRequest
);
