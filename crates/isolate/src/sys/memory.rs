//! Memory of a process that others are forked from.

use std::{
    fs,
    io::{self, Read as _},
    ops::Range,
    os::fd::{AsRawFd as _, OwnedFd},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};

/// Moves everything that this process has written so far into a file in memory that nobody can
/// change, and maps it at the same addresses.
///
/// A fork copies the page table of memory without a file, and the end of the copy takes it apart
/// again, page by page, touched or not. Of memory with a file only what is touched costs anything.
///
/// The process must have one thread. What cannot be moved stays where it is. Done again, it takes up
/// what was written since.
pub(crate) fn put_into_a_file() -> io::Result<()> {
    let ranges = own_ranges(&read_maps()?);
    let file = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut offset = 0;
    for range in ranges {
        // One that is not there any more held the list.
        if copy(&file, offset, &range).is_ok() {
            map(&file, offset, &range)?;
            offset += range.end - range.start;
        }
    }
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    // Nobody has the descriptor after this; the seal is for whoever might find a way to it.
    Ok(fcntl_add_seals(&file, all)?)
}

fn read_maps() -> io::Result<String> {
    let mut text = String::with_capacity(64 << 10);
    fs::File::open("/proc/self/maps")?.read_to_string(&mut text)?;
    Ok(text)
}

/// Finds writable memory without a file: the heap and what was mapped for it. Not the stack, on
/// which we are.
fn own_ranges(maps: &str) -> Vec<Range<usize>> {
    maps.lines().filter_map(own_range).collect()
}

fn own_range(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (addresses, rights) = (fields.next()?, fields.next()?);
    let name = fields.nth(3).unwrap_or_default();
    if rights != "rw-p" || !matches!(name, "" | "[heap]" | "/memfd:memory") {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

fn copy(file: &OwnedFd, offset: usize, range: &Range<usize>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let position = i64::try_from(offset + at - range.start).or(Err(Errno::OVERFLOW))?;
        // SAFETY: the kernel reads memory that is mapped and readable, as it has just said.
        let written = unsafe {
            libc::pwrite(file.as_raw_fd(), at as *const libc::c_void, range.end - at, position)
        };
        match usize::try_from(written) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => at += written,
            Err(_) => return Err(super::last_errno()),
        }
    }
    Ok(())
}

/// Between the copy and this nothing may write to the range: no other thread does, and we have
/// only our stack.
fn map(file: &OwnedFd, offset: usize, range: &Range<usize>) -> Result<(), Errno> {
    let offset = i64::try_from(offset).or(Err(Errno::OVERFLOW))?;
    // SAFETY: what was there is replaced by a copy of itself.
    let mapped = unsafe {
        libc::mmap(
            range.start as *mut libc::c_void,
            range.end - range.start,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            file.as_raw_fd(),
            offset,
        )
    };
    if mapped == libc::MAP_FAILED { Err(super::last_errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writable_memory_without_a_file_is_ours() {
        let maps = "00400000-00401000 r--p 00000000 fe:00 1 /usr/bin/python3\n\
            00900000-00902000 rw-p 00500000 fe:00 1 /usr/bin/python3\n\
            00a00000-00a10000 rw-p 00000000 00:00 0 [heap]\n\
            7f00000000-7f00001000 rw-p 00000000 00:00 0 \n\
            7f00002000-7f00003000 ---p 00000000 00:00 0 \n\
            7f00004000-7f00005000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n\
            7f00006000-7f00007000 rw-p 00000000 00:01 9 /memfd:memory (deleted)\n\
            7fff000000-7fff001000 rw-p 00000000 00:00 0 [stack]\n";
        let ours =
            [0xa0_0000..0xa1_0000, 0x7f_0000_0000..0x7f_0000_1000, 0x7f_0000_6000..0x7f_0000_7000];
        assert_eq!(own_ranges(maps), ours);
    }
}
