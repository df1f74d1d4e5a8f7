//! Commands, as a supervisor is told of them.

use std::collections::BTreeMap;

use isolate::supervisor::wire::{Input, Size, Start, User, Wanted};
use model::{
    image::{HOST, UsedImage},
    sandbox::Sandbox,
    spec::{self, ElseIn, ExecSpec, RunAs, SandboxSpec},
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

/// The home of root inside.
const ROOT_HOME: &str = "/root";

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

/// Refuses a sandbox in which no command could be run as it says.
pub(super) fn check_run(
    spec: &SandboxSpec,
    no_root: Option<&'static str>,
) -> Result<(), SandboxError> {
    let refuse = |why: &str| Err(SandboxError::Invalid(why.to_owned()));
    check_user(user(spec, &ExecSpec::default())?, no_root)?;
    let is_path = |path: &str| path.starts_with('/') && path.len() <= 4096 && !path.contains('\0');
    if spec.run.directory.as_deref().is_some_and(|path| !is_path(path)) {
        return refuse("the folder that commands are run in is an absolute path");
    }
    let is_bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if spec.env.iter().any(is_bad) {
        return refuse("a variable has a name without =, and neither holds the character zero");
    }
    let size: usize = spec.env.iter().map(|(name, value)| name.len() + value.len() + 5).sum();
    if size > MAX_COMMAND / 2 {
        return refuse("the variables of a sandbox take 512 KiB at most");
    }
    Ok(())
}

/// Refuses a command that cannot be run in this sandbox, which may have no root for this reason.
pub(super) fn check(
    sandbox: &Sandbox,
    spec: &ExecSpec,
    no_root: Option<&'static str>,
) -> Result<(), SandboxError> {
    check_user(user(&sandbox.spec, spec)?, no_root)?;
    check_size(&environment(image_of(sandbox), &sandbox.spec, spec), 0, spec)
}

fn check_user(user: User, no_root: Option<&'static str>) -> Result<(), SandboxError> {
    match no_root {
        Some(why) if user == User::Root => Err(SandboxError::Invalid(why.to_owned())),
        Some(_) | None => Ok(()),
    }
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
        directory: directory(&sandbox.spec, spec).to_owned(),
        user: user(&sandbox.spec, spec)?,
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

/// Returns where a command is run.
fn directory<'a>(sandbox: &'a SandboxSpec, spec: &'a ExecSpec) -> &'a str {
    let own = Some(spec.working_directory.as_str()).filter(|own| !own.is_empty());
    let of_sandbox = sandbox.run.directory.as_deref();
    own.or(of_sandbox).unwrap_or(match spec.else_in {
        ElseIn::Workspace => isolate::plan::WORKSPACE,
        ElseIn::Home => home_of(user_name(sandbox, spec)),
    })
}

/// Returns the home of a user.
fn home_of(user: Option<&str>) -> &'static str {
    match user {
        Some(user) if RunAs::ROOT.contains(&user) => ROOT_HOME,
        Some(_) | None => isolate::plan::HOME,
    }
}

/// Returns the home of the user that a sandbox's commands are run as.
pub(super) fn home(run: &RunAs) -> &'static str {
    home_of(run.user.as_deref())
}

/// Returns the name of whoever runs a command.
fn user_name<'a>(sandbox: &'a SandboxSpec, spec: &'a ExecSpec) -> Option<&'a str> {
    spec.user.as_deref().or(sandbox.run.user.as_deref())
}

fn user(sandbox: &SandboxSpec, spec: &ExecSpec) -> Result<User, SandboxError> {
    user_called(user_name(sandbox, spec))
}

/// Returns the user that a sandbox's commands are run as, and its files are read and written by.
pub(super) fn user_of(run: &RunAs) -> Result<User, SandboxError> {
    user_called(run.user.as_deref())
}

fn user_called(name: Option<&str>) -> Result<User, SandboxError> {
    let plain = |user| User::Plain { user, group: user };
    match name {
        None | Some("agbox") => Ok(plain(isolate::plan::INSIDE_USER)),
        Some(root) if RunAs::ROOT.contains(&root) => Ok(User::Root),
        Some(other) => match other.parse::<u16>() {
            // Root has one more spelling, and no number has two.
            Ok(number) if number.to_string() == other => Ok(plain(number.into())),
            Ok(_) | Err(_) => Err(SandboxError::Invalid(format!(
                "there is no user {other:?}: use agbox, root or a number"
            ))),
        },
    }
}

/// The command's own variables win over the sandbox's, those over its image's, and those over what
/// everybody has.
fn environment(image: Option<&UsedImage>, sandbox: &SandboxSpec, spec: &ExecSpec) -> Vec<String> {
    let home = home_of(user_name(sandbox, spec));
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
    fn a_command_is_run_as_it_says_else_as_its_sandbox_says() {
        let text = |text: &str| Some(text.to_owned());
        let plain = SandboxSpec::default();
        let run = RunAs { user: text("root"), directory: text("/srv") };
        let own = SandboxSpec { run, ..SandboxSpec::default() };
        let run = RunAs { user: text("0"), directory: None };
        let root = SandboxSpec { run, ..SandboxSpec::default() };
        let nothing = ExecSpec::default();
        let at_home = ExecSpec { else_in: ElseIn::Home, ..ExecSpec::default() };
        let says = ExecSpec {
            working_directory: "/tmp".to_owned(),
            user: text("agbox"),
            ..at_home.clone()
        };
        let rows = [
            (&plain, &nothing, "/workspace", "/home/agbox"),
            (&plain, &at_home, "/home/agbox", "/home/agbox"),
            (&own, &at_home, "/srv", "/root"),
            (&root, &at_home, "/root", "/root"),
            (&root, &nothing, "/workspace", "/root"),
            (&own, &says, "/tmp", "/home/agbox"),
        ];
        for (sandbox, spec, folder, home) in rows {
            assert_eq!(directory(sandbox, spec), folder);
            let env = environment(None, sandbox, spec);
            assert!(env.contains(&format!("HOME={home}")), "{env:?}");
        }
    }

    #[test]
    fn a_sandbox_says_only_what_commands_can_be_run_with() {
        let with =
            |user: Option<&str>, directory: Option<&str>, env: &[(&str, &str)]| SandboxSpec {
                run: RunAs {
                    user: user.map(str::to_owned),
                    directory: directory.map(str::to_owned),
                },
                env: variables(env),
                ..SandboxSpec::default()
            };
        let large = "x".repeat(MAX_COMMAND / 2);
        let refused = [
            with(Some("nobody-here"), None, &[]),
            with(None, Some("relative"), &[]),
            with(None, Some("/a\0b"), &[]),
            with(None, None, &[("", "x")]),
            with(None, None, &[("A=B", "x")]),
            with(None, None, &[("A", "x\0")]),
            with(None, None, &[("A", &large)]),
        ];
        for spec in refused {
            let answer = check_run(&spec, None);
            assert!(matches!(answer, Err(SandboxError::Invalid(_))), "{spec:?}: {answer:?}");
        }
        let root = with(Some("0"), Some("/srv"), &[("A", "")]);
        assert!(check_run(&root, None).is_ok());
        assert!(check_run(&root, Some(ONE_USER)).is_err());
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
