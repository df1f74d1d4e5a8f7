//! Messages that are too long for a packet: they go in a file that is in memory alone.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{MemfdFlags, fstat, memfd_create},
    io::{Errno, pread, write},
};

/// The longest message, more than the kernel lets a command and its environment be.
pub const LONGEST: usize = 3 << 20;

/// Puts a message into a file.
pub fn pack(mut message: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create("ringfence message", MemfdFlags::CLOEXEC)?;
    while !message.is_empty() {
        let written = write(&file, message)?;
        message = message.get(written..).unwrap_or_default();
    }
    Ok(file)
}

/// Takes a message out of a file.
pub fn unpack(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(fstat(file)?.st_size).or(Err(Errno::INVAL))?;
    if length > LONGEST {
        return Err(Errno::MSGSIZE);
    }
    let mut message = vec![0; length];
    let mut done = 0;
    while let Some(rest) = message.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, u64::try_from(done).unwrap_or(u64::MAX))? {
            0 => return Err(Errno::BADMSG),
            read => done += read,
        }
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_a_file_comes_out_of_it() {
        for length in [0, 1, 100_000, LONGEST] {
            let message = vec![7; length];
            assert_eq!(unpack(&pack(&message).unwrap()).unwrap(), message);
        }
        assert_eq!(unpack(&pack(&vec![7; LONGEST + 1]).unwrap()), Err(Errno::MSGSIZE));
    }
}
