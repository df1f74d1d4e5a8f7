//! The messages of `ringfence.v1`, made from `proto/ringfence/v1`, which says what they mean.

/// Messages, and what calls and answers them.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated; what it means is said in the protocol files"
)]
pub mod v1 {
    tonic::include_proto!("ringfence.v1");
}
