//! What a sandbox is as a container: a value that the engine is given.

use std::{collections::HashMap, path::Path};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, RestartPolicy, RestartPolicyNameEnum,
};
use model::{ids::NodeId, sandbox::Sandbox, spec::Resources};

use super::door::{DOOR, INIT};
use crate::sandboxes::{Defaults, machine::HOSTNAME};

/// The label that says which sandbox a container is of.
pub(super) const SANDBOX: &str = "dev.ringfence.sandbox";

/// The label that says which server it is of: others may use the same engine.
const NODE: &str = "dev.ringfence.node";

/// Where a container has the folder in which its init meets the daemon.
const MEETING: &str = "/run/ringfence";

/// What init needs to become a supervisor and to start commands as others. Commands get none of it.
const CAPABILITIES: [&str; 7] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"];

/// Returns the name of a container. There is one for each sandbox, however often it is asked for.
pub(super) fn name(sandbox: &str) -> String {
    format!("ringfence-{sandbox}")
}

/// Returns the label that every container of a node has.
pub(super) fn label_of_node(node: &NodeId) -> String {
    format!("{NODE}={node}")
}

/// Returns what the container of a sandbox is to be; nothing if it is not known which image it is made
/// of. `folder` is where init is, and meets the daemon.
pub(super) fn body(
    sandbox: &Sandbox,
    node: &NodeId,
    defaults: Defaults,
    folder: &Path,
) -> Option<ContainerCreateBody> {
    let image = sandbox.life.images.get(&sandbox.spec.image)?;
    let labels = HashMap::from([
        (SANDBOX.to_owned(), sandbox.id.to_string()),
        (NODE.to_owned(), node.to_string()),
    ]);
    Some(ContainerCreateBody {
        // What it was made of is noted by its digest; the name may lead elsewhere by now.
        image: Some(image.id.clone()),
        hostname: Some(HOSTNAME.to_owned()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        entrypoint: Some(vec![format!("{MEETING}/{INIT}"), format!("{MEETING}/{DOOR}")]),
        cmd: Some(Vec::new()),
        // Nobody but our init starts anything in it.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        stop_signal: Some("SIGKILL".to_owned()),
        labels: Some(labels),
        host_config: Some(host_config(&sandbox.spec.resources, defaults, folder)),
        ..ContainerCreateBody::default()
    })
}

fn host_config(asked: &Resources, defaults: Defaults, folder: &Path) -> HostConfig {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let memory = number(asked.memory.unwrap_or(defaults.memory).as_bytes());
    HostConfig {
        memory: Some(memory),
        // No swap beyond it.
        memory_swap: Some(memory),
        nano_cpus: asked.millicores.map(|it| number(it.saturating_mul(1_000_000))),
        pids_limit: Some(asked.processes.unwrap_or(defaults.processes).into()),
        network_mode: Some("none".to_owned()),
        ipc_mode: Some("private".to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        privileged: Some(false),
        init: Some(false),
        mounts: Some(vec![meeting(folder)]),
        // What commands write is kept by their supervisor.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        ..HostConfig::default()
    }
}

/// The one thing of the machine that a container has.
fn meeting(folder: &Path) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(folder.display().to_string()),
        target: Some(MEETING.to_owned()),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use model::{
        ids::SandboxId,
        image::{UsedImage, UsedImages},
        spec::SandboxSpec,
        transition::{Creation, Observation},
        units::{ByteSize, Timestamp},
    };

    use super::*;

    fn sandbox(resources: Resources) -> Sandbox {
        let spec = SandboxSpec { image: "python".to_owned(), resources, ..SandboxSpec::default() };
        let (id, node) = (SandboxId::from_random([1; 16]), "node_1".parse().unwrap());
        let at = Timestamp::from_millis(1);
        let used = UsedImage { id: "sha256:ab".to_owned(), ..UsedImage::default() };
        let images = UsedImages::from([("python".to_owned(), used)]);
        let creation = Creation::new(id, "default".parse().unwrap(), None, node, spec, at);
        creation.and(Observation::Preparing { step: String::new(), images }, at).into_sandbox()
    }

    #[test]
    fn a_container_has_no_network_no_rights_and_nothing_of_the_machine_but_its_door() {
        let sandbox = sandbox(Resources::default());
        let body = body(&sandbox, &sandbox.node, Defaults::default(), Path::new("/data/sb_1"));
        let body = body.unwrap();
        assert_eq!(body.image.as_deref(), Some("sha256:ab"));
        assert_eq!(body.entrypoint.unwrap(), ["/run/ringfence/init", "/run/ringfence/door"]);
        assert_eq!(body.healthcheck.unwrap().test.unwrap(), ["NONE"]);
        assert_eq!(body.labels.unwrap()[SANDBOX], sandbox.id.as_str());
        let host = body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
        assert_eq!(host.cap_add.unwrap(), CAPABILITIES);
        assert_eq!(host.security_opt.unwrap(), ["no-new-privileges:true"]);
        assert_eq!((host.privileged, host.binds, host.devices), (Some(false), None, None));
        let mounts = host.mounts.unwrap();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].read_only, Some(true));
        assert_eq!(mounts[0].source.as_deref(), Some("/data/sb_1"));
    }

    #[test]
    fn limits_are_passed_on_and_there_always_are_some() {
        let host = |resources| {
            let sandbox = sandbox(resources);
            let folder = Path::new("/data/sb_1");
            let body = body(&sandbox, &sandbox.node, Defaults::default(), folder).unwrap();
            body.host_config.unwrap()
        };
        let usual = host(Resources::default());
        assert_eq!((usual.memory, usual.memory_swap), (Some(2 << 30), Some(2 << 30)));
        assert_eq!((usual.nano_cpus, usual.pids_limit), (None, Some(1024)));
        let memory = Some(ByteSize::mib(64));
        let asked = host(Resources { memory, millicores: Some(1500), ..Resources::default() });
        assert_eq!((asked.memory, asked.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!(asked.nano_cpus, Some(1_500_000_000));
    }
}
