//! What keys may do and have: `[policy]`.

use std::{collections::BTreeMap, time::Duration};

use model::{
    capability::{Asked, Capabilities},
    policy::{Pattern, Policy, Quotas, Rule, Scopes},
    token::Lifetime,
};
use serde::{Deserialize, Serialize};

use super::units;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Capabilities of humans, with blanks between them.
    pub human: String,
    /// Capabilities of agents.
    pub agent: String,
    /// How long tokens of threads, exchanged tokens and those of admins are valid, by default and at most: `5m` to `15m`.
    #[serde(with = "units::duration")]
    pub token_ttl: Duration,
    /// How long tokens of sessions are valid: `5m` to `60m`. If it is not set, `30m`, or `token_ttl` if that is set to less
    /// than its default.
    #[serde(with = "units::optional_duration", skip_serializing_if = "Option::is_none")]
    pub session_ttl: Option<Duration>,
    /// Of tenants that have none of their own.
    pub quotas: QuotasConfig,
    /// What keys of a role may do.
    pub roles: RolesConfig,
    /// Tenants with quotas of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, QuotasConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolesConfig {
    pub admin: RoleConfig,
    pub broker: RoleConfig,
    pub user: RoleConfig,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleConfig {
    /// The most that such keys have, besides what the kind of their actor has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<String>,
    /// Which scopes they reach: patterns such as `thread:*`, or `own` alone.
    pub scopes: Vec<String>,
}

/// What a tenant has at once. What is not set has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotasConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
}

impl Default for RoleConfig {
    fn default() -> Self {
        Self { capabilities: None, scopes: vec!["*".to_owned()] }
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let Policy { human, agent, .. } = Policy::default();
        Self {
            human: human.to_string(),
            agent: agent.to_string(),
            token_ttl: Lifetime::LONGEST_OTHER,
            session_ttl: None,
            quotas: QuotasConfig::default(),
            roles: RolesConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl PolicyConfig {
    /// Returns the policy, or what makes no sense in it.
    pub(super) fn read(&self) -> Result<Policy, String> {
        let rule = |name: &str, role: &RoleConfig| role.read(&format!("policy.roles.{name}"));
        if self.token_ttl > Lifetime::LONGEST_OTHER {
            return Err("policy.token_ttl: must be 5m to 15m".to_owned());
        }
        let lifetime = |name: &str, length: Duration| {
            Lifetime::seconds(length.as_secs()).map_err(|error| format!("policy.{name}: {error}"))
        };
        let token_ttl = lifetime("token_ttl", self.token_ttl)?;
        let session_ttl = match self.session_ttl {
            Some(length) => lifetime("session_ttl", length)?,
            None if token_ttl == Lifetime::USUAL => Lifetime::USUAL_OF_SESSION,
            // An operator who shortens tokens means those of sessions too.
            None => token_ttl,
        };
        let all = self.tenants.values().chain([&self.quotas]);
        if all.clone().any(|quotas| quotas.requests_per_second == Some(0)) {
            return Err("requests_per_second must be at least 1".to_owned());
        }
        Ok(Policy {
            human: capabilities("policy.human", &self.human)?,
            agent: capabilities("policy.agent", &self.agent)?,
            admin: rule("admin", &self.roles.admin)?,
            broker: rule("broker", &self.roles.broker)?,
            user: rule("user", &self.roles.user)?,
            token_ttl,
            session_ttl,
            quotas: self.quotas.read(),
            tenants: self.tenants.iter().map(|(name, it)| (name.clone(), it.read())).collect(),
        })
    }
}

impl RoleConfig {
    fn read(&self, name: &str) -> Result<Rule, String> {
        let most = self.capabilities.as_deref();
        let most = most.map(|text| capabilities(&format!("{name}.capabilities"), text));
        let scopes = match self.scopes.as_slice() {
            [only] if only == "*" => Scopes::All,
            [only] if only == "own" => Scopes::Own,
            patterns => {
                let read = patterns.iter().map(|text| Pattern::read(text));
                let read = read.collect::<Result<Vec<_>, _>>();
                Scopes::These(read.map_err(|error| format!("{name}.scopes: {error}"))?)
            }
        };
        Ok(Rule { capabilities: most.transpose()?, scopes })
    }
}

impl QuotasConfig {
    const fn read(self) -> Quotas {
        let Self { sandboxes, executions, requests_per_second } = self;
        Quotas { sandboxes, executions, requests_per_second }
    }
}

fn capabilities(name: &str, text: &str) -> Result<Capabilities, String> {
    let asked = Asked::scope(text).map_err(|error| format!("{name}: {error}"))?;
    Ok(asked.capabilities())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_usual() {
        assert_eq!(PolicyConfig::default().read(), Ok(Policy::default()));
    }

    #[test]
    fn tokens_of_sessions_are_valid_for_30_minutes_unless_the_operator_sets_a_time() {
        for (text, of_session, of_others) in [
            ("", 30, 15),
            ("token_ttl = \"5m\"", 5, 5),
            ("session_ttl = \"60m\"", 60, 15),
            ("session_ttl = \"10m\"\ntoken_ttl = \"6m\"", 10, 6),
        ] {
            let policy = toml::from_str::<PolicyConfig>(text).unwrap().read().unwrap();
            let minutes = |number: u64| Lifetime::seconds(60 * number).unwrap();
            assert_eq!(policy.session_ttl, minutes(of_session), "{text}");
            assert_eq!(policy.lifetime(None).unwrap(), minutes(of_others), "{text}");
        }
    }

    #[test]
    fn a_policy_is_read_as_it_is_written_and_mistakes_are_named() {
        let read = |text: &str| -> Result<Policy, String> {
            toml::from_str::<PolicyConfig>(text).map_err(|error| error.to_string())?.read()
        };
        let policy = read(
            "agent = \"fs:ro\"\ntoken_ttl = \"5m\"\n[quotas]\nsandboxes = 7\n[roles.user]\n\
             scopes = [\"own\"]\ncapabilities = \"fs:rw process\"\n[tenants.acme]\nexecutions = 3",
        )
        .unwrap();
        assert_eq!(policy.agent.to_string(), "fs:ro");
        assert_eq!(policy.user.scopes, Scopes::Own);
        assert_eq!(policy.quotas("acme").executions, Some(3));
        assert_eq!(policy.quotas("other").sandboxes, Some(7));
        for (text, named) in [
            ("human = \"fs:rwx\"", "policy.human"),
            ("token_ttl = \"1h\"", "policy.token_ttl"),
            ("session_ttl = \"61m\"", "policy.session_ttl"),
            ("session_ttl = \"4m\"", "policy.session_ttl"),
            ("[roles.user]\nscopes = [\"room:*\"]", "policy.roles.user.scopes"),
            ("[roles.admin]\ncapabilities = \"all\"", "policy.roles.admin.capabilities"),
            ("[quotas]\nrequests_per_second = 0", "requests_per_second"),
            ("[roles.root]", "unknown field"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }
}
