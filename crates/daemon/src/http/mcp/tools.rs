//! Which tools there are: their names, what they say of themselves, and what does it.

use std::sync::{Arc, LazyLock};

use rmcp::model::{self, JsonObject, ToolAnnotations};
use serde_json::{Map, Value};

use super::{
    answers::{Refused, Told},
    arguments::{self, schema},
    call::Call,
    code, environment, everyday, results,
};

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Acquire,
    Refresh,
    Heartbeat,
    Release,
    RunCode,
    Exec,
    Read,
    Write,
    Edit,
    List,
    Glob,
    Grep,
}

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Adds,
    Changes,
}

static LIST: LazyLock<Vec<model::Tool>> =
    LazyLock::new(|| Tool::ALL.into_iter().map(Tool::described).collect());

impl Tool {
    const ALL: [Self; 12] = [
        Self::Acquire,
        Self::Refresh,
        Self::Heartbeat,
        Self::Release,
        Self::RunCode,
        Self::Exec,
        Self::Read,
        Self::Write,
        Self::Edit,
        Self::List,
        Self::Glob,
        Self::Grep,
    ];

    /// Returns all of them, as clients see them.
    pub(super) fn list() -> &'static [model::Tool] {
        &LIST
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "environment_acquire",
            Self::Refresh => "environment_refresh",
            Self::Heartbeat => "environment_heartbeat",
            Self::Release => "environment_release",
            Self::RunCode => "run_code",
            Self::Exec => "exec",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::List => "list",
            Self::Glob => "glob",
            Self::Grep => "grep",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Acquire => {
                "Returns the sandbox of a conversation: the existing one, or a new one. Call this first and pass \
                 the session_id of its answer to the other tools. Calling it again with the same thread_id \
                 returns the same sandbox, with its files. A sandbox is a Linux environment without network."
            }
            Self::Refresh => {
                "Issues a new token for a session, in structuredContent. Only programs that use the sandbox over \
                 HTTP need it; the other tools do not."
            }
            Self::Heartbeat => {
                "Keeps an unused session from expiring. Call it while you wait for something else."
            }
            Self::Release => {
                "Ends a session when you no longer need its sandbox. The sandbox is kept for some minutes, during \
                 which environment_acquire returns it again; after that its files are deleted."
            }
            Self::RunCode => {
                "Runs a program once in a fresh environment without network and without any package beyond the \
                 standard library, and returns its output. Nothing is kept between calls; to keep files, use \
                 write and exec in a session."
            }
            Self::Exec => {
                "Runs a shell command in the sandbox of a session, waits for it, and returns its exit code, \
                 stdout and stderr. The sandbox has no network: downloads and package installations fail, so use \
                 what is installed. Files persist between calls; variables and the working directory do not. A \
                 command that runs longer than timeout_seconds is killed and its output so far is returned."
            }
            Self::Read => {
                "Reads lines of a text file in the sandbox of a session. Long files are cut: call it again with \
                 first_line to continue."
            }
            Self::Write => {
                "Creates or replaces a whole file in the sandbox of a session. To change a part of a file, use \
                 edit."
            }
            Self::Edit => {
                "Replaces a text in a file in the sandbox of a session. Read the file first: old_string must match \
                 exactly, including whitespace."
            }
            Self::List => "Lists the entries of a directory in the sandbox of a session.",
            Self::Glob => {
                "Finds files by path pattern in the sandbox of a session. To search file contents, use grep."
            }
            Self::Grep => {
                "Finds lines that contain a literal text in files of the sandbox of a session. Regular expressions \
                 are not supported; for those, run grep with exec."
            }
        }
    }

    const fn effect(self) -> Effect {
        match self {
            Self::Read | Self::List | Self::Glob | Self::Grep => Effect::None,
            Self::Acquire | Self::Refresh | Self::Heartbeat | Self::RunCode => Effect::Adds,
            Self::Release | Self::Exec | Self::Write | Self::Edit => Effect::Changes,
        }
    }

    fn described(self) -> model::Tool {
        let effect = self.effect();
        let hints = ToolAnnotations::new()
            .read_only(effect == Effect::None)
            .destructive(effect == Effect::Changes)
            .open_world(false);
        model::Tool::new(self.name(), self.about(), Arc::new(self.new_schema()))
            .with_raw_output_schema(Arc::new(results::schema(self)))
            .with_annotations(hints)
    }

    fn new_schema(self) -> JsonObject {
        match self {
            Self::Acquire => schema::<arguments::Acquire>(),
            Self::Refresh => schema::<arguments::Refresh>(),
            Self::Heartbeat | Self::Release => schema::<arguments::Session>(),
            Self::RunCode => schema::<arguments::RunCode>(),
            Self::Exec => schema::<arguments::Exec>(),
            Self::Read => schema::<arguments::Read>(),
            Self::Write => schema::<arguments::Write>(),
            Self::Edit => schema::<arguments::Edit>(),
            Self::List => schema::<arguments::List>(),
            Self::Glob => schema::<arguments::Glob>(),
            Self::Grep => schema::<arguments::Grep>(),
        }
    }

    /// Returns it as clients see it.
    pub(super) fn shown(self) -> Option<&'static model::Tool> {
        Self::list().iter().find(|tool| tool.name == self.name())
    }

    /// Does what the arguments say.
    pub(super) async fn call(
        self,
        call: &Call,
        given: Map<String, Value>,
    ) -> Result<Told, Refused> {
        let none = JsonObject::new();
        let schema = self.shown().map_or(&none, |tool| &*tool.input_schema);
        match self {
            Self::Acquire => environment::acquire(call, arguments::read(schema, given)?).await,
            Self::Refresh => environment::refresh(call, arguments::read(schema, given)?).await,
            Self::Heartbeat => environment::heartbeat(call, arguments::read(schema, given)?).await,
            Self::Release => environment::release(call, arguments::read(schema, given)?).await,
            Self::RunCode => code::run(call, arguments::read(schema, given)?).await,
            Self::Exec => everyday::exec(call, arguments::read(schema, given)?).await,
            Self::Read => everyday::read(call, arguments::read(schema, given)?).await,
            Self::Write => everyday::write(call, arguments::read(schema, given)?).await,
            Self::Edit => everyday::edit(call, arguments::read(schema, given)?).await,
            Self::List => everyday::list(call, arguments::read(schema, given)?).await,
            Self::Glob => everyday::glob(call, arguments::read(schema, given)?).await,
            Self::Grep => everyday::grep(call, arguments::read(schema, given)?).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What agents are shown: short, strict, and every argument explained.
    #[test]
    fn every_tool_has_a_strict_schema_that_explains_each_argument() {
        for tool in Tool::list() {
            let schema = &*tool.input_schema;
            assert_eq!(schema.get("type"), Some(&"object".into()), "{}", tool.name);
            assert_eq!(schema.get("additionalProperties"), Some(&false.into()), "{}", tool.name);
            let text = serde_json::to_string(schema).unwrap();
            assert!(!text.contains("null") && !text.contains('`'), "{}: {text}", tool.name);
            for (name, argument) in schema["properties"].as_object().unwrap() {
                assert!(argument.get("description").is_some(), "{} {name}: {text}", tool.name);
                assert!(argument["type"].is_string() || argument["enum"].is_array(), "{text}");
            }
        }
    }

    /// What programs are told of answers: whole, and good for refusals too.
    #[test]
    fn every_tool_says_what_it_answers() {
        for tool in Tool::list() {
            let schema = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
            let text = schema.to_string();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(!text.contains("$ref") && !text.contains("allOf"), "{}: {text}", tool.name);
            // One type for each value; what is optional is left out, and never null.
            assert!(!text.contains("\"null\"") && !text.contains("\"type\":["), "{text}");
            assert_eq!(schema["anyOf"][1], serde_json::json!({"required": ["error"]}));
            let needed = schema["anyOf"][0]["required"].as_array().unwrap();
            assert!(!needed.is_empty(), "{}: {text}", tool.name);
            for name in needed.iter().chain([&Value::from("error")]) {
                assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn tools_that_run_something_say_that_there_is_no_network() {
        for tool in [Tool::Exec, Tool::RunCode, Tool::Acquire] {
            let about = tool.shown().unwrap().description.as_deref().unwrap();
            assert!(about.contains("no network") || about.contains("without network"), "{about}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place_and_never_repeated() {
        let schema = schema::<arguments::Exec>();
        let refused = |given: Value| {
            let Value::Object(given) = given else { unreachable!() };
            let read = arguments::read::<arguments::Exec>(&schema, given);
            read.err().map(|error| error.message().to_owned())
        };
        let rows = [
            (serde_json::json!({"command": "ls"}), None),
            (serde_json::json!({"command": "ls", "cwd": null}), None),
            (serde_json::json!({}), Some("/command: is missing")),
            (serde_json::json!({"command": 7}), Some("/command: must be of the type string")),
            (
                serde_json::json!({"command": "ls", "timeout_seconds": 601}),
                Some("/timeout_seconds: must be from 1 to 600"),
            ),
            (
                serde_json::json!({"command": "ls", "timeout_seconds": 1.5}),
                Some("/timeout_seconds: must be of the type integer"),
            ),
            (
                serde_json::json!({"command": "ls", "env": {"A": 1}}),
                Some("the arguments are not what this tool takes"),
            ),
        ];
        for (given, expected) in rows {
            assert_eq!(refused(given.clone()).as_deref(), expected, "{given}");
        }
        let unknown = refused(serde_json::json!({"command": "ls", "canary": 1})).unwrap();
        assert!(unknown.contains("command, cwd") && !unknown.contains("canary"), "{unknown}");
    }
}
