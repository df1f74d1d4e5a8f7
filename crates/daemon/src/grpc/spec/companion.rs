//! Companions: further containers beside a sandbox.

use std::collections::BTreeSet;

use api::agbox::v1;
use model::spec::{Companion, Healthcheck};

use super::{Invalid, Origin, command, duration, each, image, resources, variables};

const NAME: &str = "must be 1 to 63 letters, digits, \"-\", \"_\" and \".\", and begin with a letter \
                    or digit: it becomes a host name";

pub(super) fn read(
    companions: Vec<v1::CompanionContainerSpec>,
    origin: &Origin,
) -> Result<Vec<Companion>, Invalid> {
    let mut names = BTreeSet::new();
    each("companion_containers", companions, |path, companion| {
        if !names.insert(companion.name.clone()) {
            return Err(Invalid::new(format!("{path}.name"), "is the name of another companion"));
        }
        convert(path, companion, origin)
    })
}

fn convert(
    path: &str,
    companion: v1::CompanionContainerSpec,
    origin: &Origin,
) -> Result<Companion, Invalid> {
    let at = |name: &str| format!("{path}.{name}");
    if !is_name(&companion.name) {
        return Err(Invalid::new(at("name"), NAME));
    }
    if companion.healthcheck.is_none() && !companion.post_start_on_primary.is_empty() {
        let problem = "needs a healthcheck, which says when to run it";
        return Err(Invalid::new(at("post_start_on_primary"), problem));
    }
    let (cpu, memory) = (&companion.cpu_limit, &companion.memory_limit);
    let healthcheck = companion.healthcheck.map(|it| healthcheck(&at("healthcheck"), it));
    Ok(Companion {
        name: companion.name,
        image: image(&at("image"), companion.image, origin)?,
        env: variables(&at("envs"), companion.envs)?,
        command: command(&at("command"), companion.command)?,
        resources: resources(&at(""), cpu, memory, &companion.disk_limit)?,
        healthcheck: healthcheck.transpose()?,
        post_start_on_primary: command(
            &at("post_start_on_primary"),
            companion.post_start_on_primary,
        )?,
    })
}

fn is_name(name: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && name.len() <= 63 && name.bytes().all(is_inside)
}

/// What is zero is left to the default.
fn healthcheck(path: &str, check: v1::HealthcheckConfig) -> Result<Healthcheck, Invalid> {
    let time = |name: &str, time: Option<prost_types::Duration>| {
        let time = time.map(|time| duration(&format!("{path}.{name}"), time)).transpose()?;
        Ok(time.filter(|time| !time.is_zero()))
    };
    let problem = match check.test.split_first() {
        Some((kind, [])) if kind == "NONE" => None,
        Some((kind, _)) if kind == "NONE" => Some("NONE takes nothing after it"),
        Some((kind, [])) if kind == "CMD" || kind == "CMD-SHELL" => {
            Some("CMD and CMD-SHELL need a command after them")
        }
        Some((kind, _)) if kind == "CMD" || kind == "CMD-SHELL" => None,
        Some(_) | None => Some("must begin with CMD, CMD-SHELL or NONE"),
    };
    let test_path = format!("{path}.test");
    if let Some(problem) = problem {
        return Err(Invalid::new(test_path, problem));
    }
    for word in &check.test {
        super::no_nul(&test_path, word)?;
    }
    Ok(Healthcheck {
        test: check.test,
        interval: time("interval", check.interval)?,
        timeout: time("timeout", check.timeout)?,
        retries: Some(check.retries).filter(|retries| *retries > 0),
        start_period: time("start_period", check.start_period)?,
        start_interval: time("start_interval", check.start_interval)?,
    })
}
