//! A file that is being written, and is not in its place yet.

use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc};

use isolate::files::wire::{Answer, Ask};
use model::file::{Condition, FileStat};
use tokio::task::spawn_blocking;

use super::{FileError, Files, Hired, LONG, MAX_FILE, Parents, Place, SOON, agent, known, told};

/// What is written takes its place when it is committed, all at once. Dropped before that, nothing of
/// it stays.
#[derive(Debug)]
pub struct Writing {
    files: Files,
    hired: Hired,
    file: Arc<File>,
    written: u64,
    before: Option<FileStat>,
}

impl Files {
    /// Begins to write a file, if this condition holds now and when it is done.
    pub async fn write(
        &self,
        place: &Place,
        condition: &Condition,
        parents: Parents,
    ) -> Result<Writing, FileError> {
        let ask = Ask::Begin {
            at: place.at(),
            condition: told(condition),
            parents: parents == Parents::Make,
        };
        let mut hired = self.hire().await?;
        let begun = match hired.answer(&ask, SOON).await {
            Err(FileError::Lost) if hired.was_kept => {
                hired = self.hire_new().await?;
                hired.answer(&ask, SOON).await
            }
            begun => begun,
        };
        let (Answer::Begun(before), fd) = begun? else { return Err(FileError::Lost) };
        // Until this is decided it is of no use to others.
        hired.is_done = false;
        let file = Arc::new(agent::regular(fd)?);
        let before = before.map(|stat| known(&stat));
        Ok(Writing { files: self.clone(), hired, file, written: 0, before })
    }
}

impl Writing {
    /// Returns what was there when it was begun.
    pub fn before(&self) -> Option<&FileStat> {
        self.before.as_ref()
    }

    /// Returns how much was written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes more.
    pub async fn write<B>(&mut self, bytes: B) -> Result<(), FileError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        self.write_all(vec![bytes]).await
    }

    /// Writes pieces, one after the other.
    pub async fn write_all<B>(&mut self, pieces: Vec<B>) -> Result<(), FileError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let size: u64 = pieces.iter().map(|piece| piece.as_ref().len() as u64).sum();
        if self.written.saturating_add(size) > MAX_FILE {
            return Err(FileError::TooLarge { most: MAX_FILE });
        }
        let (file, offset) = (Arc::clone(&self.file), self.written);
        let written = spawn_blocking(move || {
            let mut at = offset;
            for piece in &pieces {
                file.write_all_at(piece.as_ref(), at)?;
                at += piece.as_ref().len() as u64;
            }
            std::io::Result::Ok(())
        });
        written.await.map_err(|_panicked| FileError::Lost)??;
        self.written += size;
        Ok(())
    }

    /// Puts it in its place, where it is when this returns, and on disk.
    pub async fn commit(mut self, mode: Option<u32>) -> Result<FileStat, FileError> {
        // Before anybody else is held up by it.
        let file = Arc::clone(&self.file);
        let synced = spawn_blocking(move || file.sync_all());
        synced.await.map_err(|_panicked| FileError::Lost)??;
        // It may have been frozen while nobody was looking.
        self.files.wake().await?;
        let crew = Arc::clone(&self.hired.crew);
        let _changing = crew.changing.lock().await;
        match self.hired.answer(&Ask::Commit { mode }, LONG).await? {
            (Answer::Done(Some(stat)), _) => Ok(known(&stat)),
            _ => Err(FileError::Lost),
        }
    }
}
