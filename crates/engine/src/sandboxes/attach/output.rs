//! One stream of a command, read from its file.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
};

use isolate::supervisor::wire::Ask as Say;
use model::exec::{Exec, ExecEnd, ExecState, LostOutput};
use rustix::{
    fs::{SeekFrom, seek},
    io::{Errno, ReadWriteFlags, preadv2},
};
use tokio::{select, sync::watch};

use super::{Extent, Flow, Stream};
use crate::sandboxes::{SandboxError, Shared, actor::Ask, feeds::Feed, outputs_in};

/// What is read at once, at most.
const CHUNK: usize = 128 << 10;

/// Reads a stream from a byte on, and waits for more while there may be more.
#[derive(Debug)]
pub struct Output {
    shared: Arc<Shared>,
    exec: Exec,
    stream: Stream,
    path: PathBuf,
    /// Open once there is something to read.
    file: Option<Arc<File>>,
    at: u64,
    flow: watch::Receiver<Flow>,
    /// The one for whom the command waits.
    seat: Option<(Arc<Feed>, u64)>,
    end_is_told: bool,
}

/// What comes next in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes, the first of which is at this place of the stream.
    Bytes { at: u64, bytes: Vec<u8> },
    /// So many bytes from this place on are not kept any more, or could not be kept.
    Gap { at: u64, length: u64 },
    /// There is nothing more, and there will not be.
    End { at: u64 },
}

impl Output {
    pub(in crate::sandboxes) fn new(
        shared: &Arc<Shared>,
        exec: &Exec,
        stream: Stream,
        from: u64,
        flow: watch::Receiver<Flow>,
        seat: Option<(Arc<Feed>, u64)>,
    ) -> Self {
        let path = path(shared, exec, stream);
        Self {
            shared: Arc::clone(shared),
            exec: exec.clone(),
            stream,
            path,
            file: None,
            at: from,
            flow,
            seat,
            end_is_told: false,
        }
    }

    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the place of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns what comes next, when it is there. What was returned before counts as read. Nothing is
    /// lost if this is dropped.
    pub async fn next(&mut self) -> Result<Part, SandboxError> {
        let mut is_told = self.want();
        loop {
            let (extent, is_over) = {
                let flow = self.flow.borrow_and_update();
                if flow.is_cleared {
                    return Err(SandboxError::OutputGone);
                }
                let extent = flow.extents.get(self.stream.index()).copied().unwrap_or_default();
                (extent, flow.end.is_some())
            };
            if self.at < extent.start {
                let (at, length) = (self.at, extent.start - self.at);
                self.at = extent.start;
                return Ok(Part::Gap { at, length });
            }
            if self.at < extent.end {
                let most = usize::try_from(extent.end - self.at).unwrap_or(CHUNK).min(CHUNK);
                let bytes = self.read(most).await?;
                if let Some(start) = self.cut_out_by_now() {
                    let (at, length) = (self.at, start - self.at);
                    self.at = start;
                    return Ok(Part::Gap { at, length });
                }
                let at = self.at;
                self.at += u64::try_from(bytes.len()).unwrap_or_default();
                return Ok(Part::Bytes { at, bytes });
            }
            if is_over {
                let at = extent.end;
                if extent.lost > 0 && !self.end_is_told {
                    self.end_is_told = true;
                    return Ok(Part::Gap { at, length: extent.lost });
                }
                return Ok(Part::End { at: at + extent.lost });
            }
            select! {
                changed = self.flow.changed() => if changed.is_err() {
                    return Err(SandboxError::Unavailable("the server lets go of it".to_owned()));
                },
                // A command that waits for this one says nothing more until it hears of it.
                () = self.shared.room(&self.exec.sandbox), if !is_told => is_told = self.want(),
            }
        }
    }

    /// Returns from where on there is something, if what was just read may have been cut out before: then
    /// it is nothing but zeros. What is cut out is so from the beginning, so that the first byte tells.
    fn cut_out_by_now(&self) -> Option<u64> {
        let file = self.file.as_deref()?;
        first_data(file, self.at).filter(|start| *start > self.at)
    }

    /// Has the command wait until this is read, not longer. Returns whether that could be said.
    fn want(&self) -> bool {
        let Some((feed, number)) = &self.seat else { return true };
        let kept = self.shared.settings.defaults.output.as_bytes();
        feed.want(*number, (self.stream, self.at), kept, |wanted| {
            let say = Say::Pace { exec: self.exec.id.to_string(), wanted: Some(wanted) };
            self.shared.try_send(&self.exec.sandbox, Ask::Say(say))
        })
    }

    async fn read(&mut self, most: usize) -> Result<Vec<u8>, SandboxError> {
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return SandboxError::OutputGone;
            }
            SandboxError::Unavailable(format!("cannot read the output of the command: {error}"))
        };
        let file = if let Some(file) = &self.file {
            Arc::clone(file)
        } else {
            let opened = Arc::new(File::open(&self.path).map_err(failed)?);
            Arc::clone(self.file.insert(opened))
        };
        let bytes = read_at(file, self.at, most).await.map_err(failed)?;
        if bytes.is_empty() {
            // It is shorter than it is said to be, so that not even waiting would help.
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }
}

/// Reads what is in memory at once, and has somebody else wait for the disk.
async fn read_at(file: Arc<File>, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let nowait = ReadWriteFlags::NOWAIT;
    match preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], at, nowait) {
        Ok(length) if length > 0 => {
            bytes.truncate(length);
            return Ok(bytes);
        }
        Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => {}
        Err(other) => return Err(other.into()),
    }
    let read = tokio::task::spawn_blocking(move || {
        let length = file.read_at(&mut bytes, at)?;
        bytes.truncate(length);
        Ok(bytes)
    });
    read.await.unwrap_or(Err(io::ErrorKind::Interrupted.into()))
}

/// Returns what there is of the output of a command that is over, and whether it was removed: whoever
/// starts a command makes its files first.
pub(super) async fn extents(shared: &Shared, exec: &Exec) -> ([Extent; 2], bool) {
    let paths = Stream::BOTH.map(|stream| path(shared, exec, stream));
    let lost = match &exec.life.state {
        ExecState::Ended(end) => end.lost_output(),
        ExecState::Running => LostOutput::default(),
    };
    let may_have_begun = match &exec.life.state {
        ExecState::Ended(ExecEnd::NotStarted { .. }) | ExecState::Running => false,
        ExecState::Ended(_) => true,
    };
    let extents = tokio::task::spawn_blocking(move || paths.map(|path| extent(&path)));
    let [stdout, stderr] = extents.await.unwrap_or_default();
    let is_cleared = may_have_begun && stdout.is_none() && stderr.is_none();
    let found = [stdout, stderr].map(Option::unwrap_or_default);
    (with_losses(found, lost), is_cleared)
}

/// Adds to what was found of each stream how much of it was lost.
fn with_losses([stdout, stderr]: [Extent; 2], lost: LostOutput) -> [Extent; 2] {
    [Extent { lost: lost.stdout, ..stdout }, Extent { lost: lost.stderr, ..stderr }]
}

/// A byte is in the file at its place in the stream; what was cut out is a hole at its beginning.
fn extent(path: &PathBuf) -> Option<Extent> {
    let file = File::open(path).ok()?;
    let end = file.metadata().map_or(0, |metadata| metadata.len());
    let start = first_data(&file, 0).unwrap_or(0).min(end);
    Some(Extent { start, end, lost: 0 })
}

/// Returns the first place from this one on that is not cut out. Nothing if the file system cannot say.
fn first_data(file: &File, from: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(from)) {
        Ok(start) => Some(start),
        // There is none up to the end.
        Err(Errno::NXIO) => file.metadata().ok().map(|metadata| metadata.len()),
        Err(_) => None,
    }
}

fn path(shared: &Shared, exec: &Exec, stream: Stream) -> PathBuf {
    let [stdout, stderr] = outputs_in(&shared.settings.folder, &exec.sandbox, &exec.id);
    match stream {
        Stream::Stdout => stdout,
        Stream::Stderr => stderr,
    }
}

#[cfg(test)]
mod tests {
    use model::execution::Exit;

    use super::*;

    #[test]
    fn after_a_restart_lost_bytes_of_stderr_are_counted_as_stderrs() {
        let (exit, lost, lost_stderr) = (Exit::Code(0), 5, 3);
        let ends = [
            ExecEnd::ExitedCut { exit, lost, lost_stderr },
            ExecEnd::TimedOut { lost, lost_stderr },
        ];
        for end in ends {
            // A server that was started again knows of it only what the record says.
            let record = serde_json::to_string(&end).unwrap();
            let end: ExecEnd = serde_json::from_str(&record).unwrap();
            let found =
                [Extent { start: 0, end: 7, lost: 0 }, Extent { start: 1, end: 9, lost: 0 }];
            let expected =
                [Extent { start: 0, end: 7, lost: 2 }, Extent { start: 1, end: 9, lost: 3 }];
            assert_eq!(with_losses(found, end.lost_output()), expected, "{record}");
        }
    }
}
