//! A file that is open for reading.

use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc};

use model::file::FileStat;
use tokio::task::spawn_blocking;

use super::{Counted, FileError};

/// An open file, as it was when it was opened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OpenFile {
    stat: FileStat,
    file: Arc<File>,
    /// As long as it is open, the sandbox is in use.
    _counted: Arc<Counted>,
}

impl OpenFile {
    pub(super) fn new(stat: FileStat, file: File, counted: Counted) -> Self {
        Self { stat, file: Arc::new(file), _counted: Arc::new(counted) }
    }

    pub fn stat(&self) -> &FileStat {
        &self.stat
    }

    /// Reads at most so many bytes from there, into this buffer. Less only at the end of the file. It
    /// is begun at once, so that whoever waits for it later may do something else meanwhile.
    pub fn read_at(
        &self,
        offset: u64,
        most: usize,
        mut buffer: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, FileError>> + Send + 'static + use<> {
        let file = Arc::clone(&self.file);
        let read = spawn_blocking(move || {
            // What was read before need not be made zero again.
            buffer.resize(most, 0);
            let mut got = 0;
            while let Some(room) = buffer.get_mut(got..).filter(|room| !room.is_empty()) {
                match file.read_at(room, offset + got as u64) {
                    Ok(0) => break,
                    Ok(more) => got += more,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            buffer.truncate(got);
            Ok(buffer)
        });
        async { Ok(read.await.map_err(|_panicked| FileError::Lost)??) }
    }

    /// Reads all of it, if it is not larger than this.
    pub async fn read_whole(&self, most: u64) -> Result<Vec<u8>, FileError> {
        let too_large = || FileError::TooLarge { most };
        if self.stat.size > most {
            return Err(too_large());
        }
        let size = usize::try_from(self.stat.size).map_err(|_too_large| too_large())?;
        self.read_at(0, size, Vec::new()).await
    }
}
