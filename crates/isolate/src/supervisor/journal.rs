//! What a supervisor wrote down of its execs, for the case that it is gone when somebody asks.
//!
//! Each record is its length, a checksum, and the record. Nothing is waited for: what the kernel
//! has taken survives every process, and when the machine goes the sandbox goes with it.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::wire::End;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    Started {
        exec: String,
        pid: u32,
    },
    Ended {
        exec: String,
        end: End,
    },
    /// Everything was stopped because somebody asked for it.
    Stopped,
}

/// Length and checksum.
const HEAD: usize = 8;

/// The longest record there can be.
const LONGEST: usize = 4096;

/// Adds a record.
pub(super) fn append(file: &OwnedFd, record: &Record) -> Result<(), Errno> {
    let body = postcard::to_allocvec(record).or(Err(Errno::INVAL))?;
    let length = u32::try_from(body.len()).or(Err(Errno::INVAL))?;
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    // In one piece: whoever reads finds all of it or, after a full disk, a tail that does not fit.
    match rustix::io::write(file, &bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(errno) => Err(errno),
    }
}

/// Reads records up to the first that is not whole.
pub fn read(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((record, rest)) = first(bytes) {
        records.push(record);
        bytes = rest;
    }
    records
}

fn first(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (length, expected) = head.split_at_checked(4)?;
    let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (body, rest) = rest.split_at_checked(length).filter(|_| length <= LONGEST)?;
    if checksum(body) != u32::from_le_bytes(expected.try_into().ok()?) {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, rest))
}

/// CRC-32C, bit by bit: records are short and rare.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::{
        plan::Exit,
        supervisor::wire::{Usage, Written},
    };

    fn records() -> Vec<Record> {
        let exit = Exit::Signal(9);
        let (usage, written) = (Usage::default(), Written::default());
        let end = End::Exited { exit, usage, written };
        let exec = || "ex_1".to_owned();
        vec![
            Record::Started { exec: exec(), pid: 7 },
            Record::Ended { exec: exec(), end },
            Record::Stopped,
        ]
    }

    fn written() -> Vec<u8> {
        let (read, write) = rustix::pipe::pipe().unwrap();
        for record in records() {
            append(&write, &record).unwrap();
        }
        drop(write);
        let mut bytes = Vec::new();
        std::fs::File::from(read).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_checksum_is_the_one_that_everybody_uses() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&written()), records());
    }

    #[test]
    fn a_tail_that_is_cut_anywhere_takes_only_its_own_record_along() {
        let bytes = written();
        let mut last = 0;
        for end in 0..=bytes.len() {
            let found = read(&bytes[..end]);
            assert_eq!(found, records()[..found.len()], "{end}");
            assert!(found.len() >= last);
            last = found.len();
        }
        assert_eq!(last, records().len());
    }

    #[test]
    fn no_flipped_bit_makes_another_record() {
        let bytes = written();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = read(&flipped);
            assert_eq!(found, records()[..found.len()], "{bit}");
        }
    }
}
