//! Faults of the machine while a real server runs real sandboxes. The table of all rows is
//! `docs/faults.md`.

mod breaks;
mod calls;
mod disk;
mod files;
mod followers;
mod foreign;
mod ground;
mod locks;
mod processes;
mod reboot;
mod time;
mod torn;
mod users;
