//! Names and commands as callers send them.

use std::{collections::BTreeMap, str::FromStr};

use api::agbox::v1;
use model::{
    ids::{Alias, ExecId, IdError, SandboxId},
    spec::ExecSpec,
};

use super::{
    invalid::Invalid,
    spec::{command, no_nul, variables},
};

/// Reads a caller's own name of a sandbox. Without one the server gives a name.
pub(crate) fn alias(text: &str) -> Result<Option<Alias>, Invalid> {
    own_name(text, "sandbox_id")
}

/// Says whether a text has the form of the ids that the server gives, each of them once.
pub(crate) fn is_given_by_server(text: &str) -> bool {
    text.parse::<SandboxId>().is_ok()
}

/// Reads a caller's own name of a command. Without one the server gives a name.
pub(crate) fn exec_id(text: &str) -> Result<Option<ExecId>, Invalid> {
    own_name(text, "exec_id")
}

fn own_name<Name>(text: &str, field: &str) -> Result<Option<Name>, Invalid>
where
    Name: FromStr<Err = IdError>,
{
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: IdError| Invalid::new(field, error.to_string()))
}

/// Reads the labels by which sandboxes are chosen.
pub(crate) fn selector(
    labels: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Invalid> {
    for text in labels.keys().chain(labels.values()) {
        no_nul("label_selector", text)?;
    }
    Ok(labels)
}

/// Reads a command to run.
pub(crate) fn exec_spec(request: v1::CreateExecRequest) -> Result<ExecSpec, Invalid> {
    if request.command.is_empty() {
        return Err(Invalid::new("command", "is required"));
    }
    // Unlike the main process of a sandbox, a command may well have an empty argument.
    let (program, arguments) = request.command.split_at(1);
    command("command", program.to_vec())?;
    for argument in arguments {
        no_nul("command", argument)?;
    }
    no_nul("cwd", &request.cwd)?;
    if !request.cwd.is_empty() && !request.cwd.starts_with('/') {
        return Err(Invalid::new("cwd", "must be absolute, or empty for /workspace"));
    }
    Ok(ExecSpec {
        command: request.command,
        working_directory: request.cwd,
        env: variables("env_overrides", request.env_overrides)?,
        ..ExecSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: &[&str], cwd: &str, env: &[(&str, &str)]) -> v1::CreateExecRequest {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        v1::CreateExecRequest {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            cwd: cwd.to_owned(),
            env_overrides: env.iter().map(own).collect(),
            ..v1::CreateExecRequest::default()
        }
    }

    #[test]
    fn a_command_is_taken_or_refused_by_its_field() {
        let good =
            [request(&["true"], "", &[]), request(&["sh", "-c", ""], "/workspace", &[("A", "")])];
        for request in good {
            let spec = exec_spec(request.clone()).unwrap();
            assert!(spec.command == request.command && spec.working_directory == request.cwd);
            assert_eq!(spec.env, request.env_overrides);
        }
        let bad = [
            (request(&[], "", &[]), "command: is required"),
            (request(&["", "a"], "", &[]), "command[0]: must not be empty"),
            (request(&["a", "\0"], "", &[]), "command: must not have a NUL"),
            (request(&["a"], "tmp", &[]), "cwd: must be absolute"),
            (request(&["a"], "/\0", &[]), "cwd: must not have a NUL"),
            (request(&["a"], "", &[("", "1")]), "env_overrides: the name of a variable"),
            (request(&["a"], "", &[("A", "\0")]), "env_overrides: must not have a NUL"),
        ];
        for (request, expected) in bad {
            let problem = exec_spec(request).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem:?} is not {expected:?}");
        }
    }

    #[test]
    fn a_name_of_the_callers_own_has_a_form_and_none_is_none() {
        assert_eq!(alias(""), Ok(None));
        assert_eq!(alias("my-box").unwrap().map(String::from), Some("my-box".to_owned()));
        assert_eq!(exec_id("run_1").unwrap().map(String::from), Some("run_1".to_owned()));
        for bad in ["abc", "-abc", "a b c", "sb_"] {
            assert_eq!(alias(bad).unwrap_err().field, "sandbox_id", "{bad}");
            assert_eq!(exec_id(bad).unwrap_err().field, "exec_id", "{bad}");
        }
    }
}
