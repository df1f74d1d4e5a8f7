//! The request over the configuration.

use std::collections::BTreeSet;

use api::agbox::v1;

use super::Invalid;

/// Puts two together. Texts that are set win; labels and variables win one by one; lists go on
/// where the first ends, but for the command, which is replaced.
pub(super) fn merge(base: v1::CreateSpec, over: v1::CreateSpec) -> Result<v1::CreateSpec, Invalid> {
    check_tools("config_yaml.builtin_tools", &base.builtin_tools)?;
    check_tools("create_spec.builtin_tools", &over.builtin_tools)?;
    Ok(v1::CreateSpec {
        image: text(base.image, over.image),
        mounts: chain(base.mounts, over.mounts),
        copies: chain(base.copies, over.copies),
        builtin_tools: once(chain(base.builtin_tools, over.builtin_tools)),
        companion_containers: chain(base.companion_containers, over.companion_containers),
        labels: chain(base.labels, over.labels),
        envs: chain(base.envs, over.envs),
        idle_ttl: over.idle_ttl.or(base.idle_ttl),
        ports: chain(base.ports, over.ports),
        command: if over.command.is_empty() { base.command } else { over.command },
        cpu_limit: text(base.cpu_limit, over.cpu_limit),
        memory_limit: text(base.memory_limit, over.memory_limit),
        disk_limit: text(base.disk_limit, over.disk_limit),
        gpus: text(base.gpus, over.gpus),
    })
}

/// Naming a tool in both is an agreement; naming it twice in one is a mistake.
fn check_tools(path: &str, tools: &[String]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    if tools.iter().any(String::is_empty) {
        return Err(Invalid::new(path, "the name of a tool must not be empty"));
    }
    if !tools.iter().all(|tool| seen.insert(tool)) {
        return Err(Invalid::new(path, "names a tool twice"));
    }
    Ok(())
}

fn text(base: String, over: String) -> String {
    if over.is_empty() { base } else { over }
}

/// In maps the later of two equal names wins.
fn chain<All: IntoIterator + FromIterator<All::Item>>(base: All, over: All) -> All {
    base.into_iter().chain(over).collect()
}

fn once(tools: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    tools.into_iter().filter(|tool| seen.insert(tool.clone())).collect()
}
