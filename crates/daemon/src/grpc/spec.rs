//! What a sandbox is asked to be: configuration and request put together, and every rule that can
//! be checked without looking at the machine.

mod companion;
mod merge;
mod paths;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{agbox::v1, errors::agbox::Reason};
use model::{
    spec::{Copy, Idle, Mount, Port, Protocol, Provider, Resources, SandboxSpec, Suspend},
    units::ByteSize,
};

pub(crate) use paths::{HostPaths, Origin};

use super::{invalid::Invalid, units, yaml};

/// How long nobody may use a sandbox whose caller does not say.
const DEFAULT_IDLE: Duration = Duration::from_mins(10);

/// The directories of the caller's home that a sandbox can be given by one word.
const TOOLS: [&str; 7] = ["claude", "codex", "git", "uv", "npm", "apt", "opencode"];

/// A variable that the contract keeps for itself.
const RESERVED_VARIABLE: &str = "AGENTS_SANDBOX_SUPPLEMENTAL_GROUPS";

/// Ports below this one are not given away.
const FIRST_PORT: u16 = 1024;

/// Puts configuration and request together and checks the result.
pub(crate) fn read(
    create_spec: Option<v1::CreateSpec>,
    config_yaml: &[u8],
    origin: &Origin,
) -> Result<SandboxSpec, Invalid> {
    let base = if config_yaml.is_empty() { None } else { Some(yaml::read(config_yaml)?) };
    let spec = match (base, create_spec) {
        (None, None) => {
            return Err(Invalid::new("create_spec", "is required, or config_yaml instead of it"));
        }
        (base, over) => merge::merge(base.unwrap_or_default(), over.unwrap_or_default())?,
    };
    convert(spec, origin)
}

fn convert(spec: v1::CreateSpec, origin: &Origin) -> Result<SandboxSpec, Invalid> {
    check_gpus(&spec.gpus)?;
    let mut targets = BTreeSet::new();
    let resources = resources("", &spec.cpu_limit, &spec.memory_limit, &spec.disk_limit)?;
    Ok(SandboxSpec {
        provider: Provider::Local,
        image: image("image", spec.image, origin)?,
        labels: labels(spec.labels)?,
        env: variables("envs", spec.envs)?,
        command: command("command", spec.command)?,
        mounts: each("mounts", spec.mounts, |path, it| mount(path, &it, origin, &mut targets))?,
        copies: each("copies", spec.copies, |path, it| copy(path, it, origin, &mut targets))?,
        ports: ports(spec.ports)?,
        tools: tools(spec.builtin_tools, origin)?,
        companions: companion::read(spec.companion_containers, origin)?,
        resources,
        idle: idle(spec.idle_ttl)?,
        ..SandboxSpec::default()
    })
}

/// Converts the items of a list, each with its path.
fn each<Wire, Own>(
    name: &str,
    items: Vec<Wire>,
    mut convert: impl FnMut(&str, Wire) -> Result<Own, Invalid>,
) -> Result<Vec<Own>, Invalid> {
    let numbered = items.into_iter().enumerate();
    numbered.map(|(place, item)| convert(&format!("{name}[{place}]"), item)).collect()
}

fn image(path: &str, image: String, origin: &Origin) -> Result<String, Invalid> {
    if image.trim().is_empty() {
        let problem = "is required: there is no default image";
        return Err(Invalid::new(path, problem).because(Reason::ImageRequired));
    }
    no_nul(path, &image)?;
    let of_the_host =
        ["dir:", "tar:", "oci:"].into_iter().find_map(|kind| image.strip_prefix(kind));
    if let Some(source) = of_the_host {
        origin.check(path, source)?;
    }
    Ok(image)
}

fn labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Invalid> {
    for (name, value) in &labels {
        if name.is_empty() {
            return Err(Invalid::new("labels", "a label must have a name"));
        }
        no_nul("labels", name)?;
        no_nul("labels", value)?;
    }
    Ok(labels)
}

pub(super) fn variables(
    path: &str,
    variables: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Invalid> {
    for (name, value) in &variables {
        if name == RESERVED_VARIABLE {
            return Err(Invalid::new(path, format!("must not set {RESERVED_VARIABLE}")));
        }
        if name.is_empty() || name.contains('=') {
            let problem = "the name of a variable must not be empty and has no \"=\" in it";
            return Err(Invalid::new(path, problem));
        }
        no_nul(path, name)?;
        no_nul(path, value)?;
    }
    Ok(variables)
}

pub(super) fn command(path: &str, command: Vec<String>) -> Result<Vec<String>, Invalid> {
    for (place, word) in command.iter().enumerate() {
        let path = format!("{path}[{place}]");
        if word.is_empty() {
            return Err(Invalid::new(path, "must not be empty"));
        }
        no_nul(&path, word)?;
    }
    Ok(command)
}

/// No argument, variable, path or label can have one: the kernel takes it for the end.
pub(super) fn no_nul(path: &str, text: &str) -> Result<(), Invalid> {
    if text.contains('\0') {
        return Err(Invalid::new(path, "must not have a NUL character in it"));
    }
    Ok(())
}

fn mount(
    path: &str,
    mount: &v1::MountSpec,
    origin: &Origin,
    targets: &mut BTreeSet<String>,
) -> Result<Mount, Invalid> {
    use model::spec::Access;

    let access = if mount.writable { Access::Writable } else { Access::ReadOnly };
    let source = origin.source(&format!("{path}.source"), &mount.source)?;
    let target = new_target(path, &mount.target, targets)?;
    Ok(Mount { source, target, access })
}

fn copy(
    path: &str,
    copy: v1::CopySpec,
    origin: &Origin,
    targets: &mut BTreeSet<String>,
) -> Result<Copy, Invalid> {
    let source_path = format!("{path}.source");
    let source = origin.source(&source_path, &copy.source)?;
    if source == "/" {
        return Err(Invalid::new(source_path, "must not be the root of the machine"));
    }
    for pattern in &copy.exclude_patterns {
        no_nul(&format!("{path}.exclude_patterns"), pattern)?;
    }
    let target = new_target(path, &copy.target, targets)?;
    Ok(Copy { source, target, exclude_patterns: copy.exclude_patterns })
}

/// Two things cannot be in one place.
fn new_target(path: &str, text: &str, taken: &mut BTreeSet<String>) -> Result<String, Invalid> {
    let path = format!("{path}.target");
    let target = paths::target(&path, text)?;
    if !taken.insert(target.clone()) {
        return Err(Invalid::new(path, "is the target of another mount or copy"));
    }
    Ok(target)
}

fn ports(ports: Vec<v1::PortMapping>) -> Result<Vec<Port>, Invalid> {
    let mut taken = BTreeSet::new();
    each("ports", ports, |path, port| {
        let host_path = format!("{path}.host_port");
        let inside = port_number(&format!("{path}.container_port"), port.container_port)?;
        let host = port_number(&host_path, port.host_port)?;
        if host < FIRST_PORT {
            return Err(Invalid::new(host_path, format!("must be {FIRST_PORT} or above")));
        }
        if !taken.insert((host, port.protocol)) {
            return Err(Invalid::new(host_path, "is published twice with one protocol"));
        }
        let protocol = match port.protocol.try_into() {
            Ok(v1::PortProtocol::Tcp) => Protocol::Tcp,
            Ok(v1::PortProtocol::Udp) => Protocol::Udp,
            Ok(v1::PortProtocol::Sctp) => Protocol::Sctp,
            Err(_) => {
                return Err(Invalid::new(format!("{path}.protocol"), "must be TCP, UDP or SCTP"));
            }
        };
        Ok(Port { inside, host, protocol })
    })
}

fn port_number(path: &str, number: u32) -> Result<u16, Invalid> {
    let number = u16::try_from(number).ok().filter(|number| *number > 0);
    number.ok_or_else(|| Invalid::new(path, "must be from 1 to 65535"))
}

/// Tools are directories of the caller's home.
fn tools(tools: Vec<String>, origin: &Origin) -> Result<Vec<String>, Invalid> {
    let path = "builtin_tools";
    if tools.iter().any(|tool| !TOOLS.contains(&tool.as_str())) {
        return Err(Invalid::new(path, format!("must be among {}", TOOLS.join(", "))));
    }
    if !tools.is_empty() {
        origin.check_home(path)?;
    }
    Ok(tools)
}

fn check_gpus(gpus: &str) -> Result<(), Invalid> {
    match gpus {
        "" => Ok(()),
        "all" => {
            let problem = "this server gives no GPUs to sandboxes; leave it empty";
            Err(Invalid::new("gpus", problem).because(Reason::NotSupported))
        }
        _ => Err(Invalid::new("gpus", "must be \"\" or \"all\"")),
    }
}

/// Empty texts stand for the operator's defaults.
fn resources(prefix: &str, cpu: &str, memory: &str, disk: &str) -> Result<Resources, Invalid> {
    let size = |name: &str, text: &str| {
        let problem = "must be a size above zero such as \"512m\" or \"4g\"";
        let bytes = limit(text, units::bytes);
        bytes.map_err(|()| Invalid::new(format!("{prefix}{name}"), problem))
    };
    let millicores = limit(cpu, units::millicores).map_err(|()| {
        let problem = "must be a number of cores such as \"2\" or \"0.5\", at least \"0.001\"";
        Invalid::new(format!("{prefix}cpu_limit"), problem)
    })?;
    Ok(Resources {
        millicores,
        memory: size("memory_limit", memory)?.map(ByteSize::bytes),
        disk: size("disk_limit", disk)?.map(ByteSize::bytes),
        processes: None,
    })
}

fn limit(text: &str, read: impl FnOnce(&str) -> Option<u64>) -> Result<Option<u64>, ()> {
    if text.is_empty() {
        return Ok(None);
    }
    read(text).filter(|value| *value > 0).map(Some).ok_or(())
}

fn idle(ttl: Option<prost_types::Duration>) -> Result<Option<Idle>, Invalid> {
    let after = match ttl {
        None => DEFAULT_IDLE,
        Some(ttl) => duration("idle_ttl", ttl)?,
    };
    Ok((!after.is_zero()).then_some(Idle { after, then: Suspend::Stop }))
}

fn duration(path: &str, duration: prost_types::Duration) -> Result<Duration, Invalid> {
    duration.try_into().map_err(|_negative| Invalid::new(path, "must not be negative"))
}

#[cfg(test)]
mod tests;
