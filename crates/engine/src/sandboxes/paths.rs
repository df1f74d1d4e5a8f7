//! Paths of the machine that a sandbox is given: which of them, where to, and on whose behalf.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use isolate::{
    paths::{Access, HostCopy, HostMount, MAX_PATHS, MAX_TEXT, Need, Paths, With},
    sandbox::{SandboxAnswer, SandboxOrder, WRITABLE},
};
use model::{
    ids::SandboxId,
    image::HOST,
    spec::{self, SandboxSpec},
};

use super::{SandboxError, Sandboxes, materials, tools};
use crate::{EngineError, images::Reference, spawner::Spawner};

/// Who asks for paths of the machine.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Somebody on this machine, by the connection that was accepted from him: the kernel says who is
    /// at its other end, to the spawner, who opens paths with his rights. `~` is his home.
    Peer { connection: Arc<OwnedFd>, home: Option<PathBuf> },
    /// Somebody else. Paths are opened with the server's rights, beneath what the operator allows.
    Stranger { allowed: Vec<PathBuf> },
}

impl Caller {
    /// Somebody who can have no path of the machine.
    pub fn nobody() -> Self {
        Self::Stranger { allowed: Vec::new() }
    }

    fn with(&self) -> With {
        match self {
            Self::Peer { .. } => With::Peer,
            Self::Stranger { allowed } => {
                let beneath = allowed.iter().map(|path| path.to_string_lossy().into_owned());
                With::Daemon { beneath: beneath.collect() }
            }
        }
    }

    fn connection(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Peer { connection, .. } => Some(connection.as_fd()),
            Self::Stranger { .. } => None,
        }
    }
}

impl Sandboxes {
    /// Opens a file or folder of the machine for reading, with the caller's rights.
    pub async fn open_path(&self, caller: &Caller, path: &Path) -> Result<OwnedFd, SandboxError> {
        let spawner = self.shared.machine.spawner();
        let path = path.to_str().ok_or_else(|| invalid("a path must be UTF-8"))?.to_owned();
        let order = SandboxOrder::OpenPath { with: caller.with(), path };
        match ask(spawner, order, caller, |_| None).await? {
            (SandboxAnswer::Path, Some(fd)) => Ok(fd),
            _ => Err(confused()),
        }
    }
}

/// Has everything opened that the sandbox is to have, and it granted to it. Returns the variables that
/// tell where some of it is.
pub(super) async fn grant(
    spawner: &Spawner,
    caller: &Caller,
    sandbox: &SandboxId,
    spec: &mut SandboxSpec,
) -> Result<(), SandboxError> {
    let tools = tool_mounts(caller, spec)?;
    let first_tool = spec.mounts.len();
    let mut paths = wanted(spec);
    paths.images = images_of(caller, spec).into_iter().map(|(_, path)| path).collect();
    paths.mounts.extend(tools.iter().map(|tool| tool.mount.clone()));
    check(spec, &paths)?;
    let (sandbox, with) = (sandbox.to_string(), caller.with());
    let order = SandboxOrder::Grant { sandbox, with, paths };
    let granted = ask(spawner, order, caller, |path| field_of(spec, path)).await?;
    let (SandboxAnswer::Granted { missing }, _) = granted else {
        return Err(confused());
    };
    for (place, tool) in tools.into_iter().enumerate() {
        if let Some(variable) = tool.variable
            && !missing.contains(&(first_tool + place))
        {
            spec.env.entry(variable.to_owned()).or_insert(tool.mount.target);
        }
    }
    Ok(())
}

/// Returns the images that are files or folders which the caller himself opens, with their paths. Those
/// of others are opened by the server, as far as the operator lets them be chosen.
pub(super) fn images_of(caller: &Caller, spec: &SandboxSpec) -> Vec<(String, String)> {
    match caller {
        Caller::Peer { .. } => materials::names(spec)
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), place_of(name.parse().ok()?)?)))
            .collect(),
        Caller::Stranger { .. } => Vec::new(),
    }
}

/// Returns the path of an image that is a file or folder.
pub(super) fn place_of(reference: Reference) -> Option<String> {
    match reference {
        Reference::Archive(path) | Reference::Layout { path, .. } | Reference::Directory(path) => {
            path.into_os_string().into_string().ok()
        }
        Reference::Host | Reference::Registry(_) => None,
    }
}

/// Returns the folder of the machine that the root of a sandbox is made of.
pub(super) fn root_of(spec: &SandboxSpec) -> Option<String> {
    match spec.image.parse() {
        Ok(Reference::Directory(path)) => path.into_os_string().into_string().ok(),
        Ok(_) | Err(_) => None,
    }
}

/// Whether a sandbox has anything of the machine.
pub(super) fn has_paths(spec: &SandboxSpec) -> bool {
    root_of(spec).is_some()
        || !spec.mounts.is_empty()
        || !spec.copies.is_empty()
        || !spec.tools.is_empty()
}

/// Returns the field of a spec that names a path of the machine.
fn field_of(spec: &SandboxSpec, path: &str) -> Option<String> {
    let at = |name: &str, place: usize| format!("{name}[{place}].source");
    let mount = spec.mounts.iter().position(|mount| mount.source == path);
    let copy = || spec.copies.iter().position(|copy| copy.source == path);
    let is_place =
        |image: &str| image.parse().ok().and_then(place_of).is_some_and(|place| place == path);
    let companion = || spec.companions.iter().position(|companion| is_place(&companion.image));
    mount
        .map(|place| at("mounts", place))
        .or_else(|| copy().map(|place| at("copies", place)))
        .or_else(|| is_place(&spec.image).then(|| "image".to_owned()))
        .or_else(|| companion().map(|place| format!("companion_containers[{place}].image")))
        .or_else(|| (!spec.tools.is_empty()).then(|| "builtin_tools".to_owned()))
}

async fn ask(
    spawner: &Spawner,
    order: SandboxOrder,
    caller: &Caller,
    field_of: impl FnOnce(&str) -> Option<String>,
) -> Result<(SandboxAnswer, Option<OwnedFd>), SandboxError> {
    let fds: Vec<BorrowedFd<'_>> = caller.connection().into_iter().collect();
    let asked = spawner.sandbox_with(order, &fds).await;
    let (answer, fds) = asked.map_err(|error| SandboxError::Unavailable(error.to_string()))?;
    match answer {
        SandboxAnswer::NoPath(no_path) => Err(match field_of(&no_path.path) {
            Some(field) => SandboxError::field(field, no_path.to_string()),
            None => SandboxError::Invalid(no_path.to_string()),
        }),
        SandboxAnswer::Failed { broken } => {
            Err(SandboxError::Unavailable(EngineError::from(broken).to_string()))
        }
        answer => Ok((answer, fds.into_iter().next())),
    }
}

fn tool_mounts(caller: &Caller, spec: &SandboxSpec) -> Result<Vec<tools::ToolMount>, SandboxError> {
    if spec.tools.is_empty() {
        return Ok(Vec::new());
    }
    match caller {
        Caller::Peer { home: Some(home), .. } => Ok(tools::mounts(&spec.tools, home)),
        Caller::Peer { home: None, .. } | Caller::Stranger { .. } => {
            Err(invalid("builtin tools are in the caller's home, and nobody has one here"))
        }
    }
}

fn wanted(spec: &SandboxSpec) -> Paths {
    let mount = |mount: &spec::Mount| HostMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        access: match mount.access {
            spec::Access::ReadOnly => Access::ReadOnly,
            spec::Access::Writable => Access::Writable,
        },
        need: Need::Required,
    };
    let copy = |copy: &spec::Copy| HostCopy {
        source: copy.source.clone(),
        target: copy.target.clone(),
        exclude: copy.exclude_patterns.clone(),
    };
    Paths {
        mounts: spec.mounts.iter().map(mount).collect(),
        copies: spec.copies.iter().map(copy).collect(),
        images: Vec::new(),
        root: root_of(spec),
    }
}

/// Refuses what no sandbox can have, whatever is at its source.
fn check(spec: &SandboxSpec, paths: &Paths) -> Result<(), SandboxError> {
    let Paths { mounts, copies, images, root } = paths;
    if paths.count() > MAX_PATHS {
        return Err(invalid(&format!(
            "a sandbox has at most {MAX_PATHS} mounts and copies, those of its tools counted: \
             mount a folder that holds several"
        )));
    }
    let of_mounts = mounts.iter().flat_map(|it| [&it.source, &it.target]);
    let of_copies = copies.iter().flat_map(|it| it.exclude.iter().chain([&it.source, &it.target]));
    let length: usize =
        of_mounts.chain(of_copies).chain(images).chain(root).map(|text| text.len() + 8).sum();
    if length > MAX_TEXT {
        return Err(invalid(&format!(
            "paths and patterns of mounts and copies take {length} bytes, and may take {MAX_TEXT}"
        )));
    }
    let targets = mounts.iter().map(|it| &it.target);
    for target in targets.chain(copies.iter().map(|it| &it.target)) {
        check_target(spec, target)?;
    }
    for (place, mount) in mounts.iter().enumerate() {
        let others = mounts.iter().skip(place + 1);
        if others.map(|other| &other.target).any(|other| *other == mount.target) {
            return Err(invalid(&format!("{:?} is the target of two mounts", mount.target)));
        }
        if let Some(copy) =
            copies.iter().find(|it| Path::new(&it.target).starts_with(&mount.target))
        {
            return Err(invalid(&format!(
                "{:?} cannot be copied into the mount at {:?}: put it into the mount's source",
                copy.target, mount.target
            )));
        }
    }
    if copies.iter().any(|copy| copy.source == "/") {
        return Err(invalid("the whole machine cannot be copied: name a folder of it"));
    }
    Ok(())
}

/// What the server itself puts into every sandbox.
const OURS: [&str; 3] = ["/proc", "/dev", "/sys"];

fn check_target(spec: &SandboxSpec, target: &str) -> Result<(), SandboxError> {
    let path = Path::new(target);
    let is_below = |folder: &str| path.starts_with(folder);
    let goes_up = path.components().any(|part| part == std::path::Component::ParentDir);
    if target == "/" || goes_up || OURS.iter().any(|folder| is_below(folder)) {
        return Err(invalid(&format!("{target:?} cannot be a target: name a folder of your own")));
    }
    if spec.image != HOST {
        return Ok(());
    }
    // Everything else of that root is the machine's own, which nobody changes.
    let has_room = |folder: &str| {
        path.strip_prefix("/")
            .is_ok_and(|path| path.starts_with(folder) && path != Path::new(folder))
    };
    if WRITABLE.iter().chain(&["tmp"]).any(|folder| has_room(folder)) || is_below("/workspace") {
        return Ok(());
    }
    Err(invalid(&format!(
        "{target:?} cannot be a target in the image \"host\": choose one below /workspace, /home, \
         /root, /tmp or /var"
    )))
}

fn invalid(message: &str) -> SandboxError {
    SandboxError::Invalid(message.to_owned())
}

fn confused() -> SandboxError {
    SandboxError::Unavailable("the spawner answered something else".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> SandboxSpec {
        SandboxSpec { image: HOST.to_owned(), ..SandboxSpec::default() }
    }

    #[test]
    fn targets_are_where_a_sandbox_has_room() {
        let rows = [
            ("/workspace", true, true),
            ("/workspace/a", true, true),
            ("/home/agbox/.x", true, true),
            ("/tmp/a", true, true),
            ("/var/cache/apt/archives", true, true),
            ("/home", false, true),
            ("/tmp", false, true),
            ("/opt/a", false, true),
            ("/etc/passwd", false, true),
            ("/usr", false, true),
            ("/", false, false),
            ("/proc/x", false, false),
            ("/dev", false, false),
            ("/workspace/../etc", false, false),
        ];
        let image = SandboxSpec { image: "debian".to_owned(), ..SandboxSpec::default() };
        for (target, of_host, of_image) in rows {
            assert_eq!(check_target(&host(), target).is_ok(), of_host, "{target}");
            assert_eq!(check_target(&image, target).is_ok(), of_image, "{target}");
        }
    }

    #[test]
    fn what_cannot_be_put_together_is_refused() {
        let mount = |source: &str, target: &str| spec::Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            access: spec::Access::ReadOnly,
        };
        let copy = |source: &str, target: &str| spec::Copy {
            source: source.to_owned(),
            target: target.to_owned(),
            exclude_patterns: Vec::new(),
        };
        let many = (0..=MAX_PATHS).map(|n| mount("/a", &format!("/tmp/{n}"))).collect();
        let long = "x".repeat(MAX_TEXT);
        let rows: [(Vec<spec::Mount>, Vec<spec::Copy>, bool); 6] = [
            (vec![mount("/a", "/tmp/a")], vec![copy("/b", "/tmp/b")], true),
            (vec![mount("/a", "/tmp/a"), mount("/b", "/tmp/a")], Vec::new(), false),
            (vec![mount("/a", "/tmp/a")], vec![copy("/b", "/tmp/a/b")], false),
            (Vec::new(), vec![copy("/", "/tmp/b")], false),
            (many, Vec::new(), false),
            (vec![mount("/a", &format!("/tmp/{long}"))], Vec::new(), false),
        ];
        for (mounts, copies, expected) in rows {
            let spec = SandboxSpec { mounts, copies, ..host() };
            let checked = check(&spec, &wanted(&spec));
            assert_eq!(checked.is_ok(), expected, "{checked:?}");
        }
    }
}
