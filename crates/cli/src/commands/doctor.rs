//! `ringfence doctor`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::{output::say, private};

/// Says what this machine can do for isolation, what is missing, and how to get it.
///
/// Starts a server of its own for a moment, which makes real slots.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence doctor
  ringfence doctor --json")]
pub(crate) struct Doctor {
    /// Write the findings as JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    state: State,
    name: &'static str,
    detail: String,
    fix: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Weak,
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Weak => "weak",
            Self::Missing => "missing",
        }
    }
}

impl Doctor {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let findings = match private::start_with(&["--allow-soft-limits", "--examined"]) {
            Ok(server) => findings(&server.machine),
            Err(error) => vec![no_slots(format!("{error:#}"))],
        };
        if self.json {
            say(&to_json(&findings).to_string())?;
        } else {
            for finding in &findings {
                say(&to_text(finding))?;
            }
        }
        let is_fit = findings.iter().all(|finding| finding.state != State::Missing);
        Ok(if is_fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn no_slots(detail: String) -> Finding {
    let fix = "read the message above; user namespaces must be allowed \
               (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor), or \
               run as root";
    Finding { state: State::Missing, name: "slots", detail, fix: Some(fix) }
}

/// The languages that there can be, and how to get each.
const RUNTIMES: [(&str, &str); 4] = [
    ("python", "apt-get install python3"),
    ("javascript", "apt-get install nodejs"),
    ("shell", "apt-get install bash"),
    ("elixir", "apt-get install elixir"),
];

fn findings(machine: &Value) -> Vec<Finding> {
    let posture = &machine["posture"];
    let kernel = posture["kernel"].as_str().unwrap_or_default().to_owned();
    let mut findings = vec![
        Finding { state: State::Ok, name: "kernel", detail: kernel, fix: None },
        Finding {
            state: State::Ok,
            name: "slots",
            detail: "own namespaces, read-only root, no capabilities, system call filter".into(),
            fix: None,
        },
        users(posture),
        system_files(posture),
        limits(&posture["limits"]),
        disks(&machine["volumes"]),
    ];
    for (name, install) in RUNTIMES {
        let rows = machine["languages"].as_array().into_iter().flatten();
        let found = rows.into_iter().find(|row| row[0] == name).and_then(|row| row[1].as_str());
        findings.push(match found {
            Some(path) => Finding { state: State::Ok, name, detail: path.to_owned(), fix: None },
            None => Finding {
                state: State::Weak,
                name,
                detail: "no runtime; answers LANGUAGE_NOT_SUPPORTED".into(),
                fix: Some(install),
            },
        });
    }
    findings.extend(limit_ranges(&machine["limits"]));
    findings
}

/// Shows what requests may ask for, as `GET /v1/limits` does.
fn limit_ranges(limits: &Value) -> impl Iterator<Item = Finding> {
    ["executions", "sandboxes"].into_iter().map(|name| {
        let ranges = limits[name].as_object().into_iter().flatten();
        let ranges: Vec<String> = ranges.map(|(field, range)| limit_range(field, range)).collect();
        Finding { state: State::Ok, name, detail: ranges.join(", "), fix: None }
    })
}

fn limit_range(field: &str, range: &Value) -> String {
    let default = match &range["default"] {
        Value::Null => "no default".to_owned(),
        default => format!("default {default}"),
    };
    format!("{field} {} to {} ({default})", range["min"], range["max"])
}

fn users(posture: &Value) -> Finding {
    let name = "users";
    let is_apart = |field: &str| posture[field] == "Apart";
    if is_apart("identity") {
        let detail = "every slot and sandbox has users of its own on the host".into();
        return Finding { state: State::Ok, name, detail, fix: None };
    }
    let (detail, fix) = if is_apart("slot_identity") {
        (
            "every slot has users of its own on the host, from /etc/subuid; sandboxes share this user",
            "run the server as root",
        )
    } else {
        (
            "all slots and sandboxes share this user on the host: no range in /etc/subuid and \
             /etc/subgid can be used",
            "run the server as root; or, for slots, install uidmap and grant a range: \
             usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER",
        )
    };
    Finding { state: State::Weak, name, detail: detail.into(), fix: Some(fix) }
}

fn system_files(posture: &Value) -> Finding {
    let name = "programs";
    if posture["system_files"] == "Private" {
        let detail = "every slot and sandbox has read-only overlays of its own".into();
        return Finding { state: State::Ok, name, detail, fix: None };
    }
    Finding {
        state: State::Weak,
        name,
        detail: "slots share the machine's files: locks and file events are seen by others".into(),
        fix: Some(
            "have /usr on a file system that overlayfs accepts as a layer (modprobe overlay)",
        ),
    }
}

fn limits(limits: &Value) -> Finding {
    let cgroups = &limits["Cgroups"];
    if let Some(version) = cgroups["version"].as_str() {
        let kill = if cgroups["has_kill"] == true { "with" } else { "without" };
        let detail = format!("cgroup {}, {kill} cgroup.kill", version.to_lowercase());
        return Finding { state: State::Ok, name: "limits", detail, fix: None };
    }
    let why = limits["Soft"]["why"].as_str().unwrap_or("unknown");
    Finding {
        state: State::Weak,
        name: "limits",
        detail: format!("memory is watched, not held: {why}"),
        fix: Some(
            "run the server as root, or in a cgroup of its own: \
             systemd-run --user --scope -p Delegate=yes ringfence serve",
        ),
    }
}

fn disks(volumes: &Value) -> Finding {
    let name = "disks";
    let held = &volumes["Held"];
    let Some(kind) = held["kind"].as_str() else {
        let why = ["None", "Broken"].iter().find_map(|state| volumes[*state]["why"].as_str());
        let detail = format!("no sandboxes: {}", why.unwrap_or("unknown"));
        let fix = "install btrfs-progs or e2fsprogs and run the server as root, or allow sandboxes \
                   without a limit: ringfence serve --allow-unlimited-disk";
        return Finding { state: State::Weak, name, detail, fix: Some(fix) };
    };
    let refused = held["refused"].as_array().into_iter().flatten().filter_map(|refused| {
        Some(format!("; not {}: {}", refused["kind"].as_str()?, refused["why"].as_str()?))
    });
    let refused: String = refused.collect();
    if matches!(kind, "tmpfs" | "unlimited") {
        let detail = format!("sandboxes' files are {kind}, as the settings allow{refused}");
        let fix = "install btrfs-progs or e2fsprogs, and run the server as root";
        return Finding { state: State::Weak, name, detail, fix: Some(fix) };
    }
    let detail = format!("sandboxes' files are held to their limits by {kind}{refused}");
    Finding { state: State::Ok, name, detail, fix: None }
}

fn to_text(finding: &Finding) -> String {
    let line = format!("{:8} {:11} {}", finding.state.word(), finding.name, finding.detail);
    match finding.fix {
        Some(fix) => format!("{line}\n{:20} fix: {fix}", ""),
        None => line,
    }
}

fn to_json(findings: &[Finding]) -> Value {
    findings
        .iter()
        .map(|finding| {
            json!({
                "state": finding.state.word(),
                "name": finding.name,
                "detail": finding.detail,
                "fix": finding.fix,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_the_files_of_sandboxes_is_named_and_why_nothing_better_does() {
        let refused = json!([{ "kind": "quota", "why": "not here" }]);
        let held = |kind| json!({ "Held": { "kind": kind, "refused": refused } });
        let found = disks(&held("btrfs"));
        assert_eq!(found.state, State::Ok);
        assert!(found.detail.ends_with("by btrfs; not quota: not here"), "{}", found.detail);
        assert_eq!(disks(&held("unlimited")).state, State::Weak);
    }

    #[test]
    fn what_is_weak_or_missing_comes_with_its_fix() {
        let machine = json!({
            "posture": {
                "kernel": "6.1.0",
                "identity": "Shared",
                "slot_identity": "Shared",
                "limits": { "Soft": { "why": "no cgroup" } },
                "system_files": "Shared",
            },
            "languages": [["python", "/usr/bin/python3"]],
            "volumes": { "None": { "why": "no kind works" } },
            "limits": {},
        });
        let findings = findings(&machine);
        for finding in &findings {
            assert_eq!(finding.state == State::Ok, finding.fix.is_none(), "{finding:?}");
        }
        let weak = findings.iter().filter(|finding| finding.state == State::Weak).count();
        assert_eq!((findings.len(), weak), (12, 7));
    }

    #[test]
    fn the_range_of_every_limit_is_shown() {
        let limits = json!({
            "executions": { "memory_mb": { "min": 1, "default": 256, "max": 4096 } },
            "sandboxes": {
                "cpu_millicores": { "min": 1, "max": 2000 },
                "processes": { "min": 8, "default": 1024, "max": 16384 },
            },
        });
        let shown: Vec<_> =
            limit_ranges(&limits).map(|finding| (finding.name, finding.detail)).collect();
        let sandboxes =
            "cpu_millicores 1 to 2000 (no default), processes 8 to 16384 (default 1024)";
        let expected = [
            ("executions", "memory_mb 1 to 4096 (default 256)".to_owned()),
            ("sandboxes", sandboxes.to_owned()),
        ];
        assert_eq!(shown, expected);
    }
}
