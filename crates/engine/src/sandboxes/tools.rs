//! Builtin tools: directories of the caller's home that a sandbox is given by one word.

use std::path::Path;

use isolate::{
    paths::{Access, HostMount, Need},
    plan::HOME,
};

/// One mount of a tool. Paths are below the caller's home, and below the home inside.
struct Row {
    tool: &'static str,
    source: &'static str,
    target: Target,
    access: Access,
    need: Need,
}

enum Target {
    /// Below the home inside, at the same place as in the caller's.
    Same,
    Path(&'static str),
    /// Where it is on the machine, which this variable tells.
    OnMachine {
        variable: &'static str,
    },
}

use Access::{ReadOnly, Writable};
use Need::{Optional, Required};

const fn row(tool: &'static str, source: &'static str, access: Access, need: Need) -> Row {
    Row { tool, source, target: Target::Same, access, need }
}

/// What every tool has. Sockets of the caller's session (his ssh agent, his sound) are not among it:
/// where they are is in his environment, which nobody here sees.
const TABLE: [Row; 12] = [
    row("claude", ".claude", Writable, Required),
    row("claude", ".claude.json", Writable, Required),
    row("codex", ".codex", Writable, Required),
    row("codex", ".agents", Writable, Optional),
    row("git", ".config/gh", ReadOnly, Optional),
    row("git", ".ssh/known_hosts", Writable, Optional),
    row("uv", ".cache/uv", Writable, Optional),
    Row {
        target: Target::OnMachine { variable: "UV_PYTHON_INSTALL_DIR" },
        ..row("uv", ".local/share/uv/python", Writable, Optional)
    },
    row("npm", ".npm", Writable, Optional),
    Row {
        target: Target::Path("/var/cache/apt/archives"),
        ..row("apt", ".cache/agents-sandbox-apt", Writable, Optional)
    },
    row("opencode", ".config/opencode", Writable, Optional),
    row("opencode", ".local/share/opencode", Writable, Optional),
];

/// A mount of a tool, and the variable that tells where it is, if there is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolMount {
    pub(super) mount: HostMount,
    pub(super) variable: Option<&'static str>,
}

/// Returns the mounts of these tools for somebody with this home.
pub(super) fn mounts(tools: &[String], home: &Path) -> Vec<ToolMount> {
    let home = home.to_string_lossy();
    let home = home.trim_end_matches('/');
    let wanted = TABLE.iter().filter(|row| tools.iter().any(|tool| tool == row.tool));
    wanted
        .map(|row| {
            let source = format!("{home}/{}", row.source);
            let (target, variable) = match row.target {
                Target::Same => (format!("{HOME}/{}", row.source), None),
                Target::Path(path) => (path.to_owned(), None),
                Target::OnMachine { variable } => (source.clone(), Some(variable)),
            };
            let mount = HostMount { source, target, access: row.access, need: row.need };
            ToolMount { mount, variable }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_its_mounts() {
        let line = |tool: &str| {
            let mounts = mounts(&[tool.to_owned()], Path::new("/home/me"));
            let one = |ToolMount { mount, variable }: &ToolMount| {
                let access = if mount.access == Writable { "rw" } else { "ro" };
                let need = if mount.need == Optional { " if there" } else { "" };
                let variable = variable.map(|name| format!(" {name}")).unwrap_or_default();
                format!("{} -> {} {access}{need}{variable}", mount.source, mount.target)
            };
            mounts.iter().map(one).collect::<Vec<_>>()
        };
        let rows: [(&str, &[&str]); 8] = [
            (
                "claude",
                &[
                    "/home/me/.claude -> /home/agbox/.claude rw",
                    "/home/me/.claude.json -> /home/agbox/.claude.json rw",
                ],
            ),
            (
                "codex",
                &[
                    "/home/me/.codex -> /home/agbox/.codex rw",
                    "/home/me/.agents -> /home/agbox/.agents rw if there",
                ],
            ),
            (
                "git",
                &[
                    "/home/me/.config/gh -> /home/agbox/.config/gh ro if there",
                    "/home/me/.ssh/known_hosts -> /home/agbox/.ssh/known_hosts rw if there",
                ],
            ),
            (
                "uv",
                &[
                    "/home/me/.cache/uv -> /home/agbox/.cache/uv rw if there",
                    "/home/me/.local/share/uv/python -> /home/me/.local/share/uv/python rw if there \
                     UV_PYTHON_INSTALL_DIR",
                ],
            ),
            ("npm", &["/home/me/.npm -> /home/agbox/.npm rw if there"]),
            ("apt", &["/home/me/.cache/agents-sandbox-apt -> /var/cache/apt/archives rw if there"]),
            (
                "opencode",
                &[
                    "/home/me/.config/opencode -> /home/agbox/.config/opencode rw if there",
                    "/home/me/.local/share/opencode -> /home/agbox/.local/share/opencode rw if there",
                ],
            ),
            ("emacs", &[]),
        ];
        for (tool, expected) in rows {
            assert_eq!(line(tool), expected, "{tool}");
        }
    }
}
