//! From the kernel's word to what is told of it.

use rustix::{
    fs::{FileType, Stat as RawStat},
    io::Errno,
};

use super::wire::{Fault, Kind, Moment, Stat, Why};

impl From<Why> for Fault {
    fn from(why: Why) -> Self {
        Self { why, there: None }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Why::from(errno).into()
    }
}

impl From<Errno> for Why {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied,
            Errno::LOOP => Self::Loop,
            Errno::EXIST => Self::Exists,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::NAMETOOLONG | Errno::ILSEQ => Self::InvalidPath,
            Errno::AGAIN | Errno::BUSY | Errno::XDEV | Errno::TXTBSY | Errno::STALE => {
                Self::Conflict
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::TooMany,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Unknown,
        }
    }
}

impl From<&RawStat> for Stat {
    fn from(raw: &RawStat) -> Self {
        let moment =
            |seconds, nanos| Moment { seconds, nanos: u32::try_from(nanos).unwrap_or_default() };
        Self {
            kind: FileType::from_raw_mode(raw.st_mode).into(),
            size: u64::try_from(raw.st_size).unwrap_or_default(),
            mode: raw.st_mode & 0o7777,
            user: raw.st_uid,
            group: raw.st_gid,
            inode: raw.st_ino,
            modified: moment(raw.st_mtime, raw.st_mtime_nsec),
            changed: moment(raw.st_ctime, raw.st_ctime_nsec),
        }
    }
}
