//! Files of a program that has ended, received from init.

use std::{os::fd::OwnedFd, time::Duration};

use isolate::collect::{
    Collect, CollectEnd, CollectReport, MAX_ENTRIES, ReportedContent, ReportedEntry,
};
use rustix::io::Errno;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    EngineError,
    collect::{CollectedContent, CollectedEntry, CollectedFiles},
    spawner::Control,
};

/// How long init may take to hand over all files. It reads directories and opens files in memory.
const COLLECT_PATIENCE: Duration = Duration::from_secs(10);

/// What to collect, and the receiver of it.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) collect: Collect,
    pub(crate) to: oneshot::Sender<CollectedFiles>,
}

/// Init did not answer in time. The slot has to be ended by force.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InitIsStuck;

impl Collection {
    /// Receives the files and hands them on. Without a socket to init, everything is lost.
    pub(super) async fn receive(mut self, control: Option<&Control>) -> Result<(), InitIsStuck> {
        let mut files = CollectedFiles { entries: Vec::new(), end: CollectEnd::Lost };
        let mut outcome = Ok(());
        if let Some(control) = control {
            let received = timeout(COLLECT_PATIENCE, read(control, &mut files.entries));
            let received = tokio::select! {
                received = received => received,
                () = self.to.closed() => return Ok(()),
            };
            match received {
                Ok(Ok(end)) => files.end = end,
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "cannot collect the files of an execution");
                }
                Err(_elapsed) => {
                    tracing::warn!("init took too long to hand over the files of an execution");
                    outcome = Err(InitIsStuck);
                }
            }
        }
        // The receiver may be gone by now.
        drop(self.to.send(files));
        outcome
    }
}

async fn read(
    control: &Control,
    entries: &mut Vec<CollectedEntry>,
) -> Result<CollectEnd, EngineError> {
    loop {
        match control.receive_collected().await? {
            (CollectReport::End(end), _) => return Ok(end),
            (CollectReport::Entry(entry), file) if has_room(entries) => {
                entries.push(collected(entry, file));
            }
            (CollectReport::Entry(_), _) => return Ok(CollectEnd::Lost),
        }
    }
}

fn has_room(entries: &[CollectedEntry]) -> bool {
    u32::try_from(entries.len()).is_ok_and(|count| count < MAX_ENTRIES)
}

fn collected(entry: ReportedEntry, file: Option<OwnedFd>) -> CollectedEntry {
    let content = match (entry.content, file) {
        (ReportedContent::File { size }, Some(file)) => CollectedContent::File { size, file },
        // The kernel leaves a descriptor out if the receiver has no room for it.
        (ReportedContent::File { .. }, None) => {
            CollectedContent::Unreadable(Errno::MFILE.raw_os_error())
        }
        (ReportedContent::TooLarge { size }, _) => CollectedContent::TooLarge { size },
        (ReportedContent::Other(kind), _) => CollectedContent::Other(kind),
        (ReportedContent::Unreadable(errno), _) => CollectedContent::Unreadable(errno),
    };
    CollectedEntry { path: entry.path, content }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use isolate::{socket::PacketSocket, wire};
    use rustix::net::SendFlags;

    use super::*;

    fn file() -> OwnedFd {
        OwnedFd::from(std::fs::File::open("/dev/null").unwrap())
    }

    fn report(path: &str) -> CollectReport {
        let content = ReportedContent::File { size: 7 };
        CollectReport::Entry(ReportedEntry { path: path.into(), content })
    }

    /// Receives these packets of an init that then stays silent, or ends.
    async fn received(
        reports: &[CollectReport],
        then_ends: bool,
    ) -> (Result<(), InitIsStuck>, CollectedFiles) {
        let (init, daemon) = PacketSocket::pair().unwrap();
        for report in reports {
            let packet = wire::encode(report).unwrap();
            init.send(&packet, &[file().as_fd()], SendFlags::empty()).unwrap();
        }
        let init = Some(init).filter(|_| !then_ends);
        let control = Control::new(daemon).unwrap();
        let (to, files) = oneshot::channel();
        let collect = Collect {
            files: Vec::new(),
            folders: Vec::new(),
            max_entries: 1,
            max_depth: 1,
            max_file_bytes: 1,
            max_total_bytes: 1,
        };
        let outcome = Collection { collect, to }.receive(Some(&control)).await;
        drop(init);
        (outcome, files.await.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_init_that_is_stuck_is_not_waited_for_without_end() {
        let (outcome, files) = received(&[report("a")], false).await;
        assert_eq!((outcome, files.entries.len()), (Err(InitIsStuck), 1));
        assert_eq!(files.end, CollectEnd::Lost);
    }

    #[tokio::test]
    async fn an_init_that_ends_leaves_what_it_has_sent() {
        let (outcome, files) = received(&[report("a"), report("b")], true).await;
        assert_eq!((outcome, files.entries.len()), (Ok(()), 2));
        assert_eq!(files.end, CollectEnd::Lost);
    }

    #[tokio::test]
    async fn nothing_is_read_after_the_end() {
        let end = CollectReport::End(CollectEnd::Complete);
        let (outcome, files) = received(&[report("a"), end, report("b")], false).await;
        assert_eq!((outcome, files.entries.len()), (Ok(()), 1));
        assert_eq!(files.end, CollectEnd::Complete);
    }

    #[test]
    fn no_more_descriptors_are_held_than_the_most_entries() {
        let entries: Vec<ReportedEntry> = (0..MAX_ENTRIES).map(|_| entry()).collect();
        let mut collected: Vec<_> = entries.into_iter().map(|it| collected(it, None)).collect();
        assert!(!has_room(&collected));
        collected.pop();
        assert!(has_room(&collected));
    }

    fn entry() -> ReportedEntry {
        ReportedEntry { path: b"output/\xff".to_vec(), content: ReportedContent::File { size: 7 } }
    }

    #[test]
    fn a_file_whose_descriptor_did_not_arrive_is_unreadable() {
        let arrived = collected(entry(), Some(file()));
        assert_eq!(arrived.path, b"output/\xff");
        assert!(matches!(arrived.content, CollectedContent::File { size: 7, .. }));
        let missing = collected(entry(), None).content;
        assert!(matches!(missing, CollectedContent::Unreadable(24)), "{missing:?}");
    }
}
