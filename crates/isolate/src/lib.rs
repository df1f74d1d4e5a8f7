//! Runs one program in its own Linux namespaces.
//!
//! The daemon asks the *spawner* (one small process with the privileges) for a *slot*: fresh
//! namespaces, a root, a cgroup, and our *init* as PID 1 in it. Init carries out a [`plan::Plan`]
//! step by step, starts the user's program as PID 2 and reports how it ended. This crate knows
//! nothing of executions, languages, the store or the wire.

pub mod collect;
pub mod files;
mod identity;
pub mod paths;
pub mod plan;
pub mod posture;
mod procfs;
pub mod sandbox;
pub mod socket;
pub mod supervisor;
pub mod sys;
pub mod volume;
pub mod wire;
pub mod zygote;

pub mod init;

#[cfg(feature = "spawner")]
pub mod cgroup;
#[cfg(feature = "spawner")]
pub mod disk;
#[cfg(feature = "spawner")]
pub mod failpoint;
#[cfg(feature = "spawner")]
pub mod lockdown;
#[cfg(feature = "spawner")]
pub mod oom;
#[cfg(feature = "spawner")]
pub mod root;
#[cfg(feature = "spawner")]
pub mod seccomp;
#[cfg(feature = "spawner")]
pub mod slot;
#[cfg(feature = "spawner")]
pub mod spawner;
