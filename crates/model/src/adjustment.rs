//! What can be changed of a sandbox that is there.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ids::Alias,
    sandbox::Sandbox,
    spec::{Idle, KeepStopped, SandboxSpec, Variables},
};

/// What is to be changed. What is absent stays as it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Adjustment {
    pub name: Option<Alias>,
    pub idle: Option<IdleRule>,
    pub keep_stopped: Option<KeepStopped>,
    /// Commands that begin from now on are run by it, unless they say otherwise.
    pub user: Option<String>,
    pub directory: Option<String>,
    /// Added to those that are there; those of the same names are replaced.
    pub env: Variables,
    /// Who wants it, as the audit log writes it.
    pub by: Option<String>,
}

/// Env is the user's secret: it never appears in a log line.
impl fmt::Debug for Adjustment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adjustment")
            .field("name", &self.name)
            .field("idle", &self.idle)
            .field("keep_stopped", &self.keep_stopped)
            .finish_non_exhaustive()
    }
}

/// Whether being idle ends in sleep, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRule {
    Never,
    After(Idle),
}

/// Something that was changed. The event says which, and never to what: values may be secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    Name,
    Idle,
    KeepStopped,
    User,
    Directory,
    Env,
}

impl Setting {
    /// Returns the name that is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Idle => "idle",
            Self::KeepStopped => "keep_stopped",
            Self::User => "user",
            Self::Directory => "directory",
            Self::Env => "env",
        }
    }
}

/// What an adjustment makes of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjusted {
    pub alias: Option<Alias>,
    pub spec: SandboxSpec,
}

impl Adjustment {
    /// Returns what this makes of a sandbox, and what it changes; nothing if it is so already.
    pub fn applied_to(&self, sandbox: &Sandbox) -> Option<(Adjusted, Vec<Setting>)> {
        let Sandbox { alias, spec, .. } = sandbox;
        let mut env = spec.env.clone();
        env.extend(self.env.clone());
        let mut run = spec.run.clone();
        run.user = self.user.clone().or(run.user);
        run.directory = self.directory.clone().or(run.directory);
        let adjusted = Adjusted {
            alias: self.name.clone().or_else(|| alias.clone()),
            spec: SandboxSpec {
                env,
                run,
                idle: match self.idle {
                    None => spec.idle,
                    Some(IdleRule::Never) => None,
                    Some(IdleRule::After(idle)) => Some(idle),
                },
                keep_stopped: self.keep_stopped.or(spec.keep_stopped),
                ..spec.clone()
            },
        };
        let now = &adjusted.spec;
        let differs = [
            (Setting::Name, adjusted.alias != *alias),
            (Setting::Idle, now.idle != spec.idle),
            (Setting::KeepStopped, now.keep_stopped != spec.keep_stopped),
            (Setting::User, now.run.user != spec.run.user),
            (Setting::Directory, now.run.directory != spec.run.directory),
            (Setting::Env, now.env != spec.env),
        ];
        let changed: Vec<Setting> =
            differs.into_iter().filter(|(_, differs)| *differs).map(|(it, _)| it).collect();
        if changed.is_empty() {
            return None;
        }
        let spec = SandboxSpec { updated_by: self.by.clone(), ..adjusted.spec };
        Some((Adjusted { spec, ..adjusted }, changed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        event::EventKind,
        ids::SandboxId,
        life::Phase,
        sandbox::{Refusal, Request},
        spec::Suspend,
        transition::{Answer, Creation, Observation},
        units::Timestamp,
    };

    fn sandbox() -> Sandbox {
        let env = Variables::from([("A".to_owned(), "1".to_owned())]);
        let spec = SandboxSpec { image: "host".to_owned(), env, ..SandboxSpec::default() };
        let name = Some("a-box".parse().unwrap());
        let [tenant, node] = ["default", "node_1"];
        let (tenant, node) = (tenant.parse().unwrap(), node.parse().unwrap());
        let id = SandboxId::from_random([1; 16]);
        Creation::new(id, tenant, name, node, spec, Timestamp::from_millis(1)).into_sandbox()
    }

    fn adjust(sandbox: &Sandbox, adjustment: Adjustment) -> Result<Answer, Refusal> {
        sandbox.request(Request::Adjust(Box::new(adjustment)), Timestamp::from_millis(2))
    }

    #[test]
    fn what_is_absent_stays_and_what_is_so_already_is_no_event() {
        let sandbox = sandbox();
        assert_eq!(adjust(&sandbox, Adjustment::default()), Ok(Answer::AlreadySo));
        let same = Adjustment { name: sandbox.alias.clone(), ..Adjustment::default() };
        assert_eq!(adjust(&sandbox, same), Ok(Answer::AlreadySo));
        let idle = Idle { after: Duration::from_mins(1), then: Suspend::Stop };
        let wanted = Adjustment {
            name: Some("b-box".parse().unwrap()),
            idle: Some(IdleRule::After(idle)),
            keep_stopped: Some(KeepStopped::Forever),
            env: Variables::from([("B".to_owned(), "2".to_owned())]),
            by: Some("human:ada".to_owned()),
            ..Adjustment::default()
        };
        let Ok(Answer::Record(step)) = adjust(&sandbox, wanted) else { panic!("not recorded") };
        let now = sandbox.clone().after(&step);
        assert_eq!(now.alias, Some("b-box".parse().unwrap()));
        assert_eq!(
            (now.spec.idle, now.spec.keep_stopped),
            (Some(idle), Some(KeepStopped::Forever))
        );
        assert_eq!(now.spec.env.len(), 2);
        assert_eq!(now.spec.image, "host");
        assert_eq!(now.life.adjusted_at, Some(Timestamp::from_millis(2)));
        // The event tells which, and no value.
        let told: Vec<_> = step.events().iter().map(|event| &event.kind).collect();
        let settings = vec![Setting::Name, Setting::Idle, Setting::KeepStopped, Setting::Env];
        assert_eq!(told, [&EventKind::Adjusted(settings)]);
        let never = Adjustment { idle: Some(IdleRule::Never), ..Adjustment::default() };
        let Ok(Answer::Record(step)) = adjust(&now, never) else { panic!("not recorded") };
        assert_eq!(now.clone().after(&step).spec.idle, None);
    }

    #[test]
    fn whatever_is_not_deleted_can_be_adjusted() {
        let wanted =
            || Adjustment { keep_stopped: Some(KeepStopped::Forever), ..Adjustment::default() };
        for phase in Phase::ALL {
            let mut sandbox = sandbox();
            sandbox.life.phase = phase;
            let is_gone = matches!(phase, Phase::Deleting | Phase::Terminated);
            match adjust(&sandbox, wanted()) {
                Err(refusal) => assert!(is_gone && refusal == Refusal::Gone, "{phase:?}"),
                Ok(Answer::Record(step)) => {
                    assert!(!is_gone && step.life().phase == phase, "{phase:?}");
                }
                Ok(other) => panic!("{phase:?}: {other:?}"),
            }
        }
        // Nobody has used it by that.
        let before = sandbox().observe(Observation::Ready, Timestamp::from_millis(1)).unwrap();
        let ready = sandbox().after(&before);
        let Ok(Answer::Record(step)) = adjust(&ready, wanted()) else { panic!("not recorded") };
        assert_eq!(step.life().last_used_at, ready.life.last_used_at);
    }
}
