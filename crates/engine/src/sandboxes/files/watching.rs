//! What happens to files, while somebody listens.

use isolate::files::wire::{Answer, Ask, Event};
use model::file::FileEvent;
use tokio::time::timeout;

use super::{FileError, Files, Hired, Place, SOON};

/// Somebody who listens. What has happened meanwhile waits in the kernel, which says if it was too
/// much; nothing else is remembered.
#[derive(Debug)]
pub struct Watching {
    hired: Hired,
}

/// How much is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    /// A file, or what is directly in a directory.
    One,
    /// A directory and everything below it.
    All,
}

impl Files {
    /// Watches a file or a directory. Everything that happens after this has returned is told.
    pub async fn watch(&self, place: &Place, breadth: Breadth) -> Result<Watching, FileError> {
        self.wake().await?;
        // One that was kept would be lost to others for as long as this goes on.
        let hired = self.hire_new().await?;
        let ask = Ask::Watch { at: place.at(), recursive: breadth == Breadth::All };
        let begun = async {
            hired.agent()?.ask(&ask).await?;
            hired.agent()?.next().await
        };
        match timeout(SOON, begun).await.unwrap_or(Err(FileError::Late))? {
            (Answer::Watching { .. }, _) => Ok(Watching { hired }),
            _ => Err(FileError::Lost),
        }
    }
}

impl Watching {
    /// Waits for what happens next. Nothing when there will be nothing more.
    pub async fn next(&self) -> Result<Option<Vec<FileEvent>>, FileError> {
        match self.hired.agent()?.next().await? {
            (Answer::Events(events), _) => Ok(Some(events.into_iter().map(event).collect())),
            (Answer::Done(_), _) => Ok(None),
            _ => Err(FileError::Lost),
        }
    }
}

fn event(event: Event) -> FileEvent {
    match event {
        Event::Created { path, is_directory } => FileEvent::Created { path, is_directory },
        Event::Changed { path } => FileEvent::Changed { path },
        Event::Deleted { path, is_directory } => FileEvent::Deleted { path, is_directory },
        Event::Overflow => FileEvent::Overflow,
        Event::Gone => FileEvent::Gone,
    }
}
