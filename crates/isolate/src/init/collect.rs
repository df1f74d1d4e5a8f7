//! Collecting the files that a program left: from the workspace to descriptors for the daemon.
//!
//! Hostile code wrote this tree, but every task of it has begun to exit, so the tree cannot change. Every
//! name is opened relative to the descriptor of its directory, without following links and without
//! leaving the mount of the workspace. Only regular files and directories are opened: opening anything
//! else can have effects. What is remembered of a directory is bounded by the limit of entries.

use std::{
    collections::{BinaryHeap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    event::poll,
    fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, fstat, openat, openat2},
    io::Errno,
    net::SendFlags,
    time::Timespec,
};

use crate::{
    collect::{
        Collect, CollectEnd, CollectLimit, CollectReport, MAX_DEPTH, MAX_ENTRIES, OtherKind,
        ReportedContent, ReportedEntry,
    },
    plan::WORKSPACE,
    socket::PacketSocket,
    wire::{self, MAX_PACKET},
};

const _: () = assert!(MAX_DEPTH as usize * 256 + 1024 < MAX_PACKET, "a path fits in a packet");

/// From a directory to a name in it: no link, no other mount, nothing above.
const HERE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How long to wait when too many descriptors are on their way.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Sends everything that is to be collected, and how that ended.
pub(super) fn send(control: &PacketSocket, collect: &Collect) -> Result<(), Errno> {
    let mut tell = |entry, file: Option<OwnedFd>| {
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        packet(control, &CollectReport::Entry(entry), &fds)
    };
    let workspace = openat(CWD, WORKSPACE, READ | OFlags::DIRECTORY, Mode::empty());
    let end = match workspace {
        Ok(workspace) => walk(&workspace, collect, &mut tell)?,
        Err(errno) => CollectEnd::Failed(errno.raw_os_error()),
    };
    packet(control, &CollectReport::End(end), &[])
}

/// Waits until the daemon has room for the packet. The daemon reads all of them, and sends nothing
/// meanwhile that it waits for.
fn packet(
    control: &PacketSocket,
    found: &CollectReport,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let packet = wire::encode(found).or(Err(Errno::BADMSG))?;
    loop {
        match control.send(&packet, fds, SendFlags::empty()) {
            // The kernel bounds how many descriptors a user has in sockets. Slots may have one user.
            Err(Errno::TOOMANYREFS) => _ = poll(&mut [], Some(&PAUSE)),
            sent => return sent,
        }
    }
}

/// Takes an entry, and the descriptor of a file.
type Sink<'a> = dyn FnMut(ReportedEntry, Option<OwnedFd>) -> Result<(), Errno> + 'a;

fn walk(workspace: &OwnedFd, collect: &Collect, tell: &mut Sink<'_>) -> Result<CollectEnd, Errno> {
    let entries_left = collect.max_entries.min(MAX_ENTRIES);
    let bytes_left = collect.max_total_bytes;
    let mut walk = Collector { collect, entries_left, bytes_left, pending: VecDeque::new(), tell };
    match walk.all(workspace) {
        Ok(()) => Ok(CollectEnd::Complete),
        Err(EarlyEnd::Limit(limit)) => Ok(CollectEnd::Limit(limit)),
        Err(EarlyEnd::Untold(errno)) => Err(errno),
    }
}

struct Collector<'a, 'tell> {
    collect: &'a Collect,
    entries_left: u32,
    bytes_left: u64,
    /// The next one is at the back.
    pending: VecDeque<PendingEntry>,
    tell: &'a mut Sink<'tell>,
}

/// An entry to be visited.
struct PendingEntry {
    parent: Rc<OpenDirectory>,
    name: Vec<u8>,
}

struct OpenDirectory {
    fd: OwnedFd,
    /// Relative to the workspace.
    path: Vec<u8>,
    /// How many levels of directories may be entered below this one.
    levels: u32,
}

/// Why a walk ends early.
#[derive(Debug)]
enum EarlyEnd {
    Limit(CollectLimit),
    Untold(Errno),
}

impl Collector<'_, '_> {
    fn all(&mut self, workspace: &OwnedFd) -> Result<(), EarlyEnd> {
        let collect = self.collect;
        let files = collect.files.iter().map(|path| (path, 0));
        let max_depth = collect.max_depth.min(MAX_DEPTH);
        let folders = collect.folders.iter().map(|path| (path, max_depth));
        for (path, levels) in files.chain(folders) {
            self.visit(workspace, path.as_bytes(), path.as_bytes().to_vec(), levels)?;
            while let Some(PendingEntry { parent, name }) = self.pending.pop_back() {
                let path = [&parent.path, b"/".as_slice(), &name].concat();
                self.visit(&parent.fd, &name, path, parent.levels)?;
            }
        }
        Ok(())
    }

    /// Visits an entry. So many levels of directories may be entered, itself included.
    fn visit(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        levels: u32,
    ) -> Result<(), EarlyEnd> {
        let kind = match kind_of(parent, name) {
            Err(Errno::NOENT) => return Ok(()),
            kind => kind,
        };
        let left = self.entries_left.checked_sub(1);
        self.entries_left = left.ok_or(EarlyEnd::Limit(CollectLimit::Entries))?;
        match kind {
            Ok(FileType::RegularFile) => self.file(parent, name, path),
            Ok(FileType::Directory) if levels > 0 => self.directory(parent, name, path, levels - 1),
            Ok(other) => self.tell(path, ReportedContent::Other(reported(other)), None),
            Err(errno) => self.tell(path, unreadable(errno), None),
        }
    }

    fn file(&mut self, parent: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<(), EarlyEnd> {
        let opened = open(parent, name, READ).and_then(|file| Ok((fstat(&file)?, file)));
        let (stat, file) = match opened {
            Ok(opened) => opened,
            Err(errno) => return self.tell(path, unreadable(errno), None),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return self.tell(path, ReportedContent::Other(reported(kind)), None);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > self.collect.max_file_bytes {
            return self.tell(path, ReportedContent::TooLarge { size }, None);
        }
        let left = self.bytes_left.checked_sub(size);
        self.bytes_left = left.ok_or(EarlyEnd::Limit(CollectLimit::TotalBytes))?;
        self.tell(path, ReportedContent::File { size }, Some(file))
    }

    /// Notes what is in a directory. It comes before everything that was noted until now.
    fn directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        levels: u32,
    ) -> Result<(), EarlyEnd> {
        // One more than may be visited, so that it is noticed if there are too many.
        let most = usize::try_from(self.entries_left).unwrap_or(usize::MAX).saturating_add(1);
        let opened = open(parent, name, READ | OFlags::DIRECTORY);
        let read = opened.and_then(|fd| Ok((first_names(&fd, most)?, fd)));
        let (names, fd) = match read {
            Ok(read) => read,
            Err(errno) => return self.tell(path, unreadable(errno), None),
        };
        let directory = Rc::new(OpenDirectory { fd, path, levels });
        let pending = |name| PendingEntry { parent: Rc::clone(&directory), name };
        self.pending.extend(names.into_iter().rev().map(pending));
        // What comes last will not be visited. So all levels together take bounded memory.
        self.pending.drain(..self.pending.len().saturating_sub(most));
        Ok(())
    }

    fn tell(
        &mut self,
        path: Vec<u8>,
        content: ReportedContent,
        file: Option<OwnedFd>,
    ) -> Result<(), EarlyEnd> {
        (self.tell)(ReportedEntry { path, content }, file).map_err(EarlyEnd::Untold)
    }
}

fn open(parent: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(parent, name, flags, Mode::empty(), HERE)
}

fn kind_of(parent: &OwnedFd, name: &[u8]) -> Result<FileType, Errno> {
    let found = open(parent, name, LOOK)?;
    Ok(FileType::from_raw_mode(fstat(found)?.st_mode))
}

/// Returns the first names of a directory in the order in which the paths below it are sorted. That of a
/// directory ends in a slash: `a-b` comes before `a/b`.
fn first_names(directory: &OwnedFd, most: usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut names = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut first: BinaryHeap<Vec<u8>> = BinaryHeap::new();
    while let Some(entry) = names.next() {
        let entry = entry?;
        let mut name = entry.file_name().to_bytes().to_vec();
        if matches!(name.as_slice(), b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => kind_of(directory, &name) == Ok(FileType::Directory),
            kind => kind == FileType::Directory,
        };
        if is_directory {
            name.push(b'/');
        }
        if first.len() < most {
            first.push(name);
        } else if let Some(mut last) = first.peek_mut()
            && name < *last
        {
            *last = name;
        }
    }
    let mut first = first.into_sorted_vec();
    for name in &mut first {
        name.pop_if(|last| *last == b'/');
    }
    Ok(first)
}

fn reported(kind: FileType) -> OtherKind {
    match kind {
        FileType::Directory => OtherKind::Directory,
        FileType::Symlink => OtherKind::SymbolicLink,
        FileType::Fifo => OtherKind::Fifo,
        FileType::Socket => OtherKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => OtherKind::Device,
        FileType::RegularFile | FileType::Unknown => OtherKind::Unknown,
    }
}

fn unreadable(errno: Errno) -> ReportedContent {
    ReportedContent::Unreadable(errno.raw_os_error())
}

#[cfg(test)]
mod tests;
