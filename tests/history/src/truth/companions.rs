//! Whether every start of a sandbox has one outcome for each of its companions.

use std::collections::HashMap;

use super::{Known, Log, Truth};
use crate::{event::Kind, report::Findings, rule::Rule};

impl Truth {
    pub(super) fn judge_companions(&self, findings: &mut Findings) {
        for log in &self.logs {
            log.judge_companions(findings);
        }
    }
}

impl Log {
    /// One that was ready may fail. Nothing follows a failure.
    fn judge_companions(&self, findings: &mut Findings) {
        let mut told: HashMap<u64, (Kind, usize)> = HashMap::new();
        for (sequence, Known { fact, line, .. }) in self.events.range(..=self.known()) {
            let again = match (fact.kind, fact.companion) {
                (Kind::Accepted, _) => {
                    told.clear();
                    None
                }
                (Kind::CompanionReady, Some(name)) => told.insert(name, (fact.kind, *line)),
                (Kind::CompanionFailed, Some(name)) => told
                    .insert(name, (fact.kind, *line))
                    .filter(|(before, _)| *before == Kind::CompanionFailed),
                _ => None,
            };
            if let Some((before, first)) = again {
                let kind = fact.kind;
                let message =
                    format!("event {sequence} is {kind:?} of a companion that was told {before:?}");
                let rule = Rule::CompanionsHaveOneOutcome;
                return findings.add(rule, &self.id, [first, *line], message);
            }
        }
    }
}
