//! Commands, as a supervisor is told of them.

use std::collections::BTreeMap;

use isolate::supervisor::wire::{Input, Size, Start, User, Wanted};
use model::{
    image::{HOST, UsedImage},
    sandbox::Sandbox,
    spec::{self, ExecSpec, SandboxSpec},
};

use super::SandboxError;

/// What a command finds if nobody sets it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What command and environment may take together. The kernel takes no more than 2 MiB, and no text of
/// more than 128 KiB.
const MAX_COMMAND: usize = 1 << 20;

/// The longest of its texts.
const MAX_TEXT: usize = (128 << 10) - 1;

/// What the variables of an image may take of that.
pub(super) const MAX_IMAGE_ENV: usize = 8 << 10;

pub(super) const ONE_USER: &str =
    "this server runs as an ordinary user, so that sandboxes have no root";

/// Refuses a sandbox whose own command could not be run. Its image need not be here yet.
pub(super) fn check_main(spec: &SandboxSpec) -> Result<(), SandboxError> {
    if spec.command.is_empty() {
        return Ok(());
    }
    let image = if spec.image == HOST { 0 } else { MAX_IMAGE_ENV };
    let command = ExecSpec { command: spec.command.clone(), ..ExecSpec::default() };
    check_size(&environment(None, spec, &command), image, &command)
}

/// Refuses a command that cannot be run in this sandbox, which may have no root for this reason.
pub(super) fn check(
    sandbox: &Sandbox,
    spec: &ExecSpec,
    no_root: Option<&'static str>,
) -> Result<(), SandboxError> {
    if let Some(why) = no_root
        && user(spec)? == User::Root
    {
        return Err(SandboxError::Invalid(why.to_owned()));
    }
    check_size(&environment(image_of(sandbox), &sandbox.spec, spec), 0, spec)
}

fn image_of(sandbox: &Sandbox) -> Option<&UsedImage> {
    sandbox.life.images.get(&sandbox.spec.image)
}

/// Returns what texts take in a packet.
pub(super) fn size_of(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + 4).sum()
}

/// Refuses a command that cannot be told to a supervisor.
fn check_size(env: &[String], more: usize, spec: &ExecSpec) -> Result<(), SandboxError> {
    if spec.command.is_empty() {
        return Err(SandboxError::Invalid("a command needs at least a program".to_owned()));
    }
    let size = size_of(env) + more + size_of(&spec.command);
    if size + spec.working_directory.len() > MAX_COMMAND {
        return Err(SandboxError::Invalid(format!(
            "the command and its environment take {size} bytes, and may take {MAX_COMMAND}: put \
             what is large into a file of the sandbox"
        )));
    }
    let mut texts = spec.command.iter().chain(env);
    if texts.any(|text| text.len() > MAX_TEXT) {
        return Err(SandboxError::Invalid(format!(
            "no argument and no variable may be longer than {MAX_TEXT} bytes: put what is large \
             into a file of the sandbox"
        )));
    }
    let texts = spec.command.iter().chain(spec.env.keys()).chain(spec.env.values());
    if texts.chain([&spec.working_directory]).any(|text| text.contains('\0')) {
        return Err(SandboxError::Invalid("a command cannot hold the character zero".to_owned()));
    }
    Ok(())
}

/// Puts a command into the words of a supervisor.
pub(super) fn start(
    sandbox: &Sandbox,
    name: &str,
    spec: &ExecSpec,
    keep: u64,
) -> Result<Start, SandboxError> {
    Ok(Start {
        exec: name.to_owned(),
        argv: spec.command.clone(),
        env: environment(image_of(sandbox), &sandbox.spec, spec),
        directory: match spec.working_directory.as_str() {
            "" => isolate::plan::WORKSPACE.to_owned(),
            directory => directory.to_owned(),
        },
        user: user(spec)?,
        keep,
        input: match spec.input {
            spec::Input::Open => Input::Open,
            spec::Input::Closed => Input::Closed,
        },
        terminal: spec.terminal.map(|size| Size { rows: size.rows, columns: size.columns }),
        at_most: spec.timeout,
        wanted: match spec.on_full {
            spec::OnFull::Wait => Some(Wanted::default()),
            spec::OnFull::Drop => None,
        },
    })
}

fn user(spec: &ExecSpec) -> Result<User, SandboxError> {
    let plain = |user| User::Plain { user, group: user };
    match spec.user.as_deref() {
        None | Some("agbox") => Ok(plain(isolate::plan::INSIDE_USER)),
        Some("root" | "0") => Ok(User::Root),
        Some(other) => match other.parse::<u16>() {
            Ok(number) => Ok(plain(number.into())),
            Err(_) => Err(SandboxError::Invalid(format!(
                "there is no user {other:?}: use agbox, root or a number"
            ))),
        },
    }
}

/// The command's own variables win over the sandbox's, those over its image's, and those over what
/// everybody has.
fn environment(image: Option<&UsedImage>, sandbox: &SandboxSpec, spec: &ExecSpec) -> Vec<String> {
    let home = if matches!(spec.user.as_deref(), Some("root" | "0")) {
        "/root"
    } else {
        isolate::plan::HOME
    };
    let base = [("HOME", home), ("LANG", "C.UTF-8"), ("PATH", PATH)];
    let mut all: BTreeMap<&str, &str> = base.into_iter().collect();
    let image = image.map(|image| &image.env).into_iter().flatten();
    let set = image.chain(&sandbox.env).chain(&spec.env);
    all.extend(set.map(|(name, value)| (name.as_str(), value.as_str())));
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use model::spec::Variables;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_commands_own_variables_win_over_those_of_the_sandbox_and_of_its_image() {
        let spec = ExecSpec { env: variables(&[("A", "exec")]), ..ExecSpec::default() };
        let sandbox = variables(&[("A", "box"), ("B", "box"), ("PATH", "/bin")]);
        let sandbox = SandboxSpec { env: sandbox, ..SandboxSpec::default() };
        let image = variables(&[("B", "image"), ("C", "image"), ("LANG", "C")]);
        let image = UsedImage { env: image, ..UsedImage::default() };
        let env = environment(Some(&image), &sandbox, &spec);
        let expected = ["A=exec", "B=box", "C=image", "HOME=/home/agbox", "LANG=C", "PATH=/bin"];
        assert_eq!(env, expected);
    }

    #[test]
    fn a_command_that_no_supervisor_could_be_told_is_refused() {
        let command = |texts: &[&str]| ExecSpec {
            command: texts.iter().map(ToString::to_string).collect(),
            ..ExecSpec::default()
        };
        let large = "x".repeat(MAX_COMMAND);
        let refused = [command(&[]), command(&["a\0b"]), command(&["echo", &large])];
        for spec in refused {
            let answer = check_size(&[], 0, &spec);
            assert!(matches!(answer, Err(SandboxError::Invalid(_))), "{answer:?}");
        }
        check_size(&[], 0, &command(&["true"])).unwrap();
    }
}
