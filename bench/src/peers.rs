//! Other sandboxes, each set up to run the slot's own interpreter.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{ENVIRONMENT, Program, Timer};

/// The names of the peers, each with how much faster we are to be.
pub(crate) const PEERS: [(&str, Option<f64>); 4] =
    [("bubblewrap", Some(12.0)), ("crun", Some(20.0)), ("runc", None), ("docker", Some(200.0))];

/// A sandbox that runs one program at a time.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) version: String,
    how: How,
    _files: TempDir,
}

#[derive(Debug)]
enum How {
    Here(Program),
    /// By a process that sees other mounts than we do.
    Elsewhere(Timer),
}

impl Peer {
    /// Sets the peer up and runs the program in it once; an error says why it cannot be compared.
    pub(crate) fn set_up(name: &str, inner: &Program) -> anyhow::Result<Self> {
        let files = TempDir::new()?;
        let (version, how) = match name {
            "bubblewrap" => bubblewrap(inner)?,
            "crun" => crun(inner, files.path())?,
            "runc" => runc(inner, files.path())?,
            "docker" => docker(inner, files.path())?,
            other => bail!("no peer is called {other}"),
        };
        let mut peer = Self { version, how, _files: files };
        peer.time()?;
        Ok(peer)
    }

    pub(crate) fn time(&mut self) -> anyhow::Result<Duration> {
        match &mut self.how {
            How::Here(program) => program.time(),
            How::Elsewhere(timer) => timer.time(),
        }
    }
}

fn find(name: &str) -> anyhow::Result<String> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin"];
    let paths = folders.map(|folder| format!("{folder}/{name}"));
    let found = paths.into_iter().find(|path| Path::new(path).is_file());
    found.with_context(|| format!("{name} is not installed"))
}

fn version(program: &str) -> anyhow::Result<String> {
    let output = Program::new([program, "--version"]).output()?;
    Ok(output.lines().next().unwrap_or_default().to_owned())
}

/// The names in the root of the host that lead into `/usr`, with where each leads.
fn links_into_usr() -> Vec<(&'static str, PathBuf)> {
    let names = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];
    let link = |name| Some((name, fs::read_link(Path::new("/").join(name)).ok()?));
    names.into_iter().filter_map(link).collect()
}

/// Every namespace that it has, and nothing of the host but a read-only `/usr`.
fn bubblewrap(inner: &Program) -> anyhow::Result<(String, How)> {
    let program = find("bwrap")?;
    let mut command = vec![program.clone()];
    let mut add = |words: &[&str]| command.extend(words.iter().map(ToString::to_string));
    add(&["--unshare-all", "--unshare-user", "--ro-bind", "/usr", "/usr"]);
    for (name, target) in links_into_usr() {
        add(&["--symlink", &target.to_string_lossy(), &format!("/{name}")]);
    }
    add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--"]);
    let program_inside = inner.below(command);
    program_inside.output()?;
    Ok((version(&program)?, How::Here(program_inside)))
}

/// What the tool's own `spec` proposes, with the host's `/usr` and our command.
fn bundle(tool: &str, inner: &Program, folder: &Path) -> anyhow::Result<()> {
    let made = Command::new(tool).arg("spec").current_dir(folder).output()?;
    if !made.status.success() {
        bail!("spec: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    let root = folder.join("rootfs");
    skeleton(&root)?;
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let environment: Vec<String> =
        ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect();
    config["process"]["args"] = json!(inner.arguments());
    config["process"]["env"] = json!(environment);
    config["process"]["terminal"] = json!(false);
    config["root"] = json!({ "path": root, "readonly": true });
    let usr = json!({ "destination": "/usr", "type": "none", "source": "/usr",
        "options": ["rbind", "ro", "nosuid", "nodev"] });
    config["mounts"].as_array_mut().context("a spec without mounts")?.push(usr);
    fs::write(path, serde_json::to_vec(&config)?)?;
    Ok(())
}

/// Makes a root that has nothing in it but places to mount on and links into `/usr`.
fn skeleton(root: &Path) -> anyhow::Result<()> {
    for name in ["dev", "etc", "proc", "sys", "tmp", "usr"] {
        fs::create_dir_all(root.join(name))?;
    }
    for (name, target) in links_into_usr() {
        symlink(target, root.join(name))?;
    }
    Ok(())
}

fn run_bundle(tool: &str, folder: &Path) -> Program {
    let name = format!("ringfence-bench-{}", std::process::id());
    Program::new([tool, "run", "--bundle", &folder.to_string_lossy(), &name])
}

fn runc(inner: &Program, folder: &Path) -> anyhow::Result<(String, How)> {
    let tool = find("runc")?;
    bundle(&tool, inner, folder)?;
    let program = run_bundle(&tool, folder);
    program.output()?;
    Ok((version(&tool)?, How::Here(program)))
}

/// crun refuses a host with both versions of cgroups mounted. There it runs where the second one
/// was unmounted: in a mount namespace that is made once, by a process that also does the timing.
fn crun(inner: &Program, folder: &Path) -> anyhow::Result<(String, How)> {
    const UNIFIED: &str = "/sys/fs/cgroup/unified";
    let tool = find("crun")?;
    bundle(&tool, inner, folder)?;
    let program = run_bundle(&tool, folder);
    let version = version(&tool)?;
    if !Path::new(UNIFIED).is_dir() {
        program.output()?;
        return Ok((version, How::Here(program)));
    }
    let hidden = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("umount {UNIFIED} && exec \"$0\" \"$@\"")]);
    let hidden: Vec<String> = hidden.collect();
    program.below(hidden.clone()).output()?;
    let ourselves = std::env::current_exe()?.to_string_lossy().into_owned();
    let timer = program.below([ourselves, "time".to_owned(), "--".to_owned()]).below(hidden);
    Ok((format!("{version}, {UNIFIED} hidden"), How::Elsewhere(Timer::start(&timer)?)))
}

/// `docker run` of an image that is only the skeleton, with the host's `/usr` in it.
fn docker(inner: &Program, folder: &Path) -> anyhow::Result<(String, How)> {
    const IMAGE: &str = "ringfence-bench:latest";
    let tool = find("docker")?;
    let engine = Program::new([&*tool, "version", "--format", "{{.Server.Version}}"]).output();
    let engine = engine.context("no Docker engine answers")?;
    skeleton(&folder.join("rootfs"))?;
    let archive =
        Command::new("tar").args(["-C", "rootfs", "-c", "."]).current_dir(folder).output()?;
    let mut import = Command::new(&tool)
        .args(["import", "-", IMAGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    import.stdin.take().context("no pipe")?.write_all(&archive.stdout)?;
    if !import.wait()?.success() {
        bail!("the image cannot be imported");
    }
    let mut command = vec![tool];
    let mut add = |words: &[&str]| command.extend(words.iter().map(ToString::to_string));
    add(&["run", "--rm", "--network", "none", "--volume", "/usr:/usr:ro"]);
    for (name, value) in ENVIRONMENT {
        add(&["--env", &format!("{name}={value}")]);
    }
    add(&[IMAGE]);
    let program = inner.below(command);
    program.output()?;
    Ok((format!("docker {engine}"), How::Here(program)))
}
