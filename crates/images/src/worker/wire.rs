//! The messages between the daemon and the worker.
//!
//! Each is one packet: the version, then the message. What is too large for a packet comes in a file
//! without a name that goes along with it. Both are parts of one build, so another version is
//! refused.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use isolate::{socket::Packet, wire};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use crate::{
    digest::Digest,
    pull::{
        Progress, Settings,
        connector::{ConnectFailure, Target},
    },
    store::{Collected, Form, InUse},
};

/// The daemon's first message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    pub form: Form,
    pub settings: Settings,
}

/// What the daemon asks. Each is answered by its number, but for the last four.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Brings an image from a registry, by its full name.
    Pull { tenant: String, name: String },
    /// Brings an image from an archive, whose file comes along.
    PullArchive { tenant: String, name: String },
    /// Brings an image from a layout. Its parts are asked for with [`Tell::Open`].
    PullLayout { tenant: String, name: String, tag: Option<String> },
    /// Looks for an image of a tenant by its full name or by its id.
    Find { tenant: String, name: String },
    /// Lists the images that a tenant has names for.
    List { tenant: String },
    /// Takes names of a tenant away.
    RemoveNames { tenant: String, names: Vec<String> },
    /// Deletes what cannot be reached.
    Collect { in_use: InUse },
    /// A part of a layout: its file comes along, unless it could not be opened.
    Opened { part: u64, failed: Option<i32> },
    /// A connection that was asked for with [`Tell::Connect`]: its socket comes along, if there is one.
    Connected { connection: u64, outcome: Result<Permitted, ConnectFailure> },
    /// Nobody wants the pull of this number any more.
    Cancel,
    /// The daemon itself keeps what the pull of this number brought.
    Release,
}

/// What may be said on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permitted {
    /// Whether the registry's credentials may be sent on it.
    pub gets_credentials: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub number: u64,
    pub ask: Ask,
}

/// What the worker tells the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// The store is open, or why not.
    Open(Result<(), Failure>),
    /// How far a pull has come. Some are left out, the last never is.
    Progress {
        number: u64,
        progress: Progress,
    },
    /// A pull needs a part of its layout.
    Part {
        number: u64,
        part: u64,
        name: String,
    },
    /// A pull needs a connection.
    Connect {
        number: u64,
        connection: u64,
        target: Target,
    },
    Done {
        number: u64,
        done: Result<Answer, Failure>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// An image, if it is there.
    Image(Option<Box<Record>>),
    Images(Vec<Summary>),
    Removed,
    Collected(Collected),
}

/// An image of the store. Its configuration is read in a way that only self-describing forms allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record(pub crate::store::Image);

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// An image in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub id: Digest,
    pub manifest: Option<Digest>,
    pub names: Vec<String>,
    pub size: u64,
}

/// What was asked for could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The registry has no such image.
    NotFound,
    /// The registry wants credentials, or other ones.
    Unauthorized,
    /// The registry, or where it leads, is on an address that is not to be connected to.
    NotAllowed,
    /// The registry cannot be reached, or does not work. That may pass.
    Unreachable,
    /// What came is not what it should be, or goes where it must not.
    Refused,
    /// The image is sound, but not for this machine or this program.
    Unsupported,
    /// A file of the machine cannot be read.
    Unreadable,
    /// There is no room for it: the tenant has too much already, or the store.
    Full,
    /// The folder of images cannot be used.
    Store,
    /// The work was stopped.
    Stopped,
    /// Too much is asked at once.
    Busy,
}

/// What passes between daemon and worker cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("a packet cannot be read")]
    Packet(#[from] wire::WireError),
    #[error("what came with a packet cannot be read")]
    Attached(#[source] io::Error),
    #[error("a message is larger than {LARGEST} bytes")]
    TooLarge,
}

/// The largest message: an image's description is at most half of it.
pub const LARGEST: usize = 16 << 20;

/// What is larger goes in a file: a packet has room for 32 KiB.
const INLINE: usize = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
enum Envelope<T> {
    Here(T),
    /// The message is in the last of the descriptors.
    Attached,
}

/// A message that is ready to be sent.
#[derive(Debug)]
pub struct Sealed {
    bytes: Vec<u8>,
    attached: Option<OwnedFd>,
    fds: Vec<OwnedFd>,
}

impl Sealed {
    /// Puts a message and descriptors into one packet.
    pub fn new<T: Serialize>(message: T, fds: Vec<OwnedFd>) -> Result<Self, WireError> {
        let bytes = wire::encode(&Envelope::Here(&message))?;
        if bytes.len() <= INLINE {
            return Ok(Self { bytes, attached: None, fds });
        }
        if bytes.len() > LARGEST {
            return Err(WireError::TooLarge);
        }
        let file = memfd_create("message", MemfdFlags::CLOEXEC);
        let file = file.map_err(|errno| WireError::Attached(errno.into()))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(WireError::Attached)?;
        let bytes = wire::encode(&Envelope::<()>::Attached)?;
        Ok(Self { bytes, attached: Some(file.into()), fds })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().chain(&self.attached).map(|fd| fd.as_fd()).collect()
    }
}

/// Reads a message, and returns it with the descriptors that belong to it.
pub fn unseal<T: DeserializeOwned>(packet: Packet) -> Result<(T, Vec<OwnedFd>), WireError> {
    let mut fds = packet.fds;
    match wire::decode(&packet.bytes)? {
        Envelope::Here(message) => Ok((message, fds)),
        Envelope::Attached => {
            let attached = fds.pop().ok_or_else(|| WireError::Attached(unexpected()))?;
            match wire::decode(&read_attached(attached.into())?)? {
                Envelope::Here(message) => Ok((message, fds)),
                Envelope::Attached => Err(WireError::Attached(unexpected())),
            }
        }
    }
}

/// The other side may be taken over: what is no plain file could make its reader wait, and one that
/// grows must end.
fn read_attached(file: File) -> Result<Vec<u8>, WireError> {
    if !file.metadata().map_err(WireError::Attached)?.is_file() {
        return Err(WireError::Attached(unexpected()));
    }
    let mut bytes = Vec::new();
    let from_start = FromStart { file, at: 0 };
    from_start.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(WireError::Attached)?;
    if bytes.len() > LARGEST { Err(WireError::TooLarge) } else { Ok(bytes) }
}

fn unexpected() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

struct FromStart {
    file: File,
    at: u64,
}

impl io::Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use isolate::socket::PacketSocket;
    use rustix::net::{RecvFlags, SendFlags};

    use super::*;

    fn across<T: DeserializeOwned>(sealed: &Sealed) -> Result<(T, Vec<OwnedFd>), WireError> {
        let (a, b) = PacketSocket::pair().unwrap();
        a.send(sealed.bytes(), &sealed.fds(), SendFlags::empty()).unwrap();
        unseal(b.receive(RecvFlags::empty()).unwrap().unwrap())
    }

    #[test]
    fn a_message_of_any_size_comes_back_as_it_was() {
        for count in [0, 1, 100, 10_000] {
            let names = (0..count).map(|it| format!("docker.io/library/{it}")).collect();
            let request = Request {
                number: 7,
                ask: Ask::RemoveNames { tenant: "default".to_owned(), names },
            };
            let (read, write) = rustix::pipe::pipe().unwrap();
            let sealed = Sealed::new(&request, vec![write]).unwrap();
            let (back, fds) = across::<Request>(&sealed).unwrap();
            assert_eq!((back, fds.len()), (request, 1), "{count}");
            drop((read, fds));
        }
    }

    #[test]
    fn an_image_comes_back_as_it_was() {
        let text =
            r#"{"architecture":"amd64","config":{"Env":["A=b"],"ExposedPorts":{"80/tcp":{}}}}"#;
        let image = crate::store::Image {
            id: Digest::of(b"x"),
            manifest: None,
            config: serde_json::from_str(text).unwrap(),
            size: 7,
        };
        let answer = Answer::Image(Some(Box::new(Record(image))));
        let tell = Tell::Done { number: 1, done: Ok(answer) };
        assert_eq!(across::<Tell>(&Sealed::new(&tell, Vec::new()).unwrap()).unwrap().0, tell);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let bytes = wire::encode(&Envelope::<()>::Attached).unwrap();
        for fds in [vec![], vec![read], vec![memfd_create("x", MemfdFlags::CLOEXEC).unwrap()]] {
            let sealed = Sealed { bytes: bytes.clone(), attached: None, fds };
            assert!(across::<Request>(&sealed).is_err());
        }
        let names = vec!["x".repeat(LARGEST)];
        let request =
            Request { number: 7, ask: Ask::RemoveNames { tenant: "default".to_owned(), names } };
        assert!(matches!(Sealed::new(&request, Vec::new()), Err(WireError::TooLarge)));
    }
}
