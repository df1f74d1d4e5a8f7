//! Tells what happens to files, as the kernel tells it.
//!
//! The kernel watches directories one by one. A directory that appears is watched from when it is heard
//! of, and what is in it by then is told as created; something may be told twice, and nothing is left
//! out without the word `Overflow`.

use std::{collections::HashMap, mem::MaybeUninit, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{
        FileType,
        inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    },
    io::Errno,
};

use super::{
    resolve::{DIRECTORY, LOOK, Root, own, reopen, split},
    serve::Hearing,
    walk::{Then, Walk},
    wire::{Answer, At, Event, Fault, Kind, MAX_WATCHED, Stat, Why},
};

/// What is told of.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// Events that are told in one packet: the longest path of each fits.
const AT_ONCE: usize = 6;

/// Watches until nobody listens any more, or what is watched is gone.
pub(super) fn watch(at: At, recursive: bool, hearing: &mut Hearing<'_>) -> Result<Answer, Fault> {
    let mut watch = Watch::begin(at, recursive, hearing)?;
    let directories = u32::try_from(watch.paths.len()).unwrap_or(u32::MAX);
    hearing.tell(&Answer::Watching { directories }, None)?;
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    loop {
        let mut fds =
            [PollFd::new(hearing.socket, PollFlags::IN), PollFd::new(&watch.queue, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
        let [socket, _] = fds;
        // Whoever says anything else has had enough of this.
        if !socket.revents().is_empty() {
            return Ok(Answer::Done(None));
        }
        let mut told = watch.read(&mut buffer, hearing)?;
        told.dedup();
        let is_gone = told.last() == Some(&Event::Gone);
        for some in told.chunks(AT_ONCE) {
            hearing.tell(&Answer::Events(some.to_vec()), None)?;
        }
        if is_gone {
            return Ok(Answer::Done(None));
        }
    }
}

/// What is watched.
struct Watch {
    queue: OwnedFd,
    /// Nothing of it is held open: what is open is not gone when it is removed.
    at: At,
    recursive: bool,
    /// The one name that is meant, if a file was asked for.
    only: Option<Vec<u8>>,
    /// The directories, by the kernel's number, from where the watch began.
    paths: HashMap<i32, Vec<u8>>,
    top: i32,
}

/// Something that was read, before it is understood.
struct Read {
    number: i32,
    flags: ReadFlags,
    name: Option<Vec<u8>>,
}

impl Watch {
    fn begin(mut at: At, recursive: bool, hearing: &mut Hearing<'_>) -> Result<Self, Fault> {
        let root = Root::open(&at.root)?;
        let found = root.find(&at.path, LOOK)?;
        let is_directory = Stat::from(&rustix::fs::fstat(&found)?).kind == Kind::Directory;
        // A file that is replaced as a whole is another one: what stays is its name.
        let only = if is_directory {
            None
        } else {
            let (parent, name) = split(&at.path);
            let (parent, name) = (parent.to_vec(), name.to_vec());
            at.path = parent;
            Some(name)
        };
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let recursive = recursive && only.is_none();
        let paths = HashMap::new();
        let mut watch = Self { queue, at, recursive, only, paths, top: -1 };
        let top = root.find(&watch.at.path, DIRECTORY)?;
        watch.top = watch.add(&top, Vec::new())?;
        if recursive {
            // So much that it cannot be watched is refused now, and told later.
            watch.add_below(&top, b"", hearing, &mut None)?;
        }
        Ok(watch)
    }

    fn add(&mut self, directory: &OwnedFd, path: Vec<u8>) -> Result<i32, Fault> {
        if self.paths.len() >= MAX_WATCHED {
            return Err(Why::TooMany.into());
        }
        match inotify::add_watch(&self.queue, own(directory), WATCHED) {
            Ok(number) => {
                self.paths.insert(number, path);
                Ok(number)
            }
            // What the kernel grants one user is used up.
            Err(Errno::NOSPC) => Err(Why::TooMany.into()),
            Err(other) => Err(other.into()),
        }
    }

    /// Watches every directory below this one. What is there by now is told, if it is to be.
    fn add_below(
        &mut self,
        directory: &OwnedFd,
        path: &[u8],
        hearing: &mut Hearing<'_>,
        told: &mut Option<&mut Vec<Event>>,
    ) -> Result<(), Fault> {
        let open = reopen(directory, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY)?;
        let mut walk = Walk::begin(open, ())?;
        walk.each(hearing, |step, (), _| {
            let below = join(path, step.path);
            let is_directory = step.kind == FileType::Directory;
            if let Some(told) = told {
                told.push(Event::Created { path: below.clone(), is_directory });
            }
            if !is_directory {
                return Ok(Then::On);
            }
            let flags = DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
            match rustix::fs::openat(step.directory, step.name, flags, rustix::fs::Mode::empty()) {
                Ok(found) => match self.add(&found, below) {
                    Err(fault) if fault.why == Why::TooMany => return Err(fault),
                    // Whoever may not read it is not told of it.
                    Ok(_) | Err(_) => {}
                },
                Err(_) => return Ok(Then::On),
            }
            Ok(Then::Into(()))
        })
    }

    /// Reads what has happened.
    fn read(
        &mut self,
        buffer: &mut [MaybeUninit<u8>],
        hearing: &mut Hearing<'_>,
    ) -> Result<Vec<Event>, Fault> {
        let mut read = Vec::new();
        let mut reader = Reader::new(&self.queue, buffer);
        // One buffer at a time, so that what is remembered has a bound.
        while read.is_empty() || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => read.push(Read {
                    number: event.wd(),
                    flags: event.events(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                }),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(other) => return Err(other.into()),
            }
        }
        let mut told = Vec::new();
        for event in read {
            self.understand(event, &mut told, hearing);
            if told.last() == Some(&Event::Gone) {
                break;
            }
        }
        Ok(told)
    }

    fn understand(&mut self, event: Read, told: &mut Vec<Event>, hearing: &mut Hearing<'_>) {
        let Read { number, flags, name } = event;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return told.push(Event::Overflow);
        }
        let is_end = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if number == self.top && flags.intersects(is_end) {
            return told.push(Event::Gone);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&number);
            return;
        }
        let (Some(above), Some(name)) = (self.paths.get(&number), name) else { return };
        if self.only.as_ref().is_some_and(|only| *only != name) {
            return;
        }
        // A file that is watched has no path from itself.
        let path = if self.only.is_some() { Vec::new() } else { join(above, &name) };
        let is_directory = flags.contains(ReadFlags::ISDIR);
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            told.push(Event::Created { path: path.clone(), is_directory });
            if is_directory && self.recursive {
                self.watch_new(&path, told, hearing);
            }
        } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            if is_directory && flags.contains(ReadFlags::MOVED_FROM) {
                self.forget(&path);
            }
            told.push(Event::Deleted { path, is_directory });
        } else if flags.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB) {
            told.push(Event::Changed { path });
        }
    }

    /// Watches a directory that has appeared. If it cannot be, whoever listens has to look himself.
    fn watch_new(&mut self, path: &[u8], told: &mut Vec<Event>, hearing: &mut Hearing<'_>) {
        let below = join(&self.at.path, path);
        let flags = DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
        let found = Root::open(&self.at.root).and_then(|root| root.find(&below, flags));
        let Ok(found) = found else { return };
        let added = self.add(&found, path.to_vec());
        let added = added.and_then(|_| self.add_below(&found, path, hearing, &mut Some(told)));
        match added {
            Ok(()) => {}
            Err(fault) if fault.why == Why::NotFound => {}
            Err(_) => told.push(Event::Overflow),
        }
    }

    /// What was moved away is watched no more: its path is another.
    fn forget(&mut self, path: &[u8]) {
        let is_below = |other: &[u8]| {
            other.strip_prefix(path).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let queue = &self.queue;
        self.paths.retain(|number, other| {
            let forgotten = is_below(other);
            if forgotten {
                // It may be gone already.
                let _ = inotify::remove_watch(queue, *number);
            }
            !forgotten
        });
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match (above.is_empty(), name.is_empty()) {
        (true, _) => name.to_vec(),
        (_, true) => above.to_vec(),
        _ => [above, b"/", name].concat(),
    }
}
