//! The rows that are built in.

use isolate::plan::{Program, WORKSPACE};
use model::units::ByteSize;

use super::{FILE, Language, Warm, base_env};

/// The names of all rows, whether their runtimes are there or not.
pub(super) const NAMES: [&str; 4] = ["python", "javascript", "shell", "elixir"];

/// Where our own files for a runtime are in a slot.
const OURS: &str = "/run/ringfence";

/// Variables that the dynamic loader and the C library look at when a program starts.
const LOADER: [&str; 5] = ["LD_*", "GLIBC_TUNABLES", "MALLOC_*", "LANG", "LC_*"];

/// Returns the rows whose runtimes are there.
pub(super) fn rows(is_there: impl Fn(&str) -> bool) -> Vec<Language> {
    let first = |programs: &[&str]| {
        programs.iter().find(|program| is_there(program)).map(ToString::to_string)
    };
    [
        first(&["/usr/bin/python3", "/usr/local/bin/python3"]).map(python),
        first(&["/usr/bin/node", "/usr/local/bin/node"]).map(javascript),
        first(&["/bin/bash", "/bin/sh"]).map(shell),
        first(&["/usr/bin/elixir", "/usr/local/bin/elixir"]).map(elixir),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn python(program: String) -> Language {
    let folder = format!("{OURS}/python");
    let zygote = Program {
        argv: vec![program.clone(), format!("{WORKSPACE}/main.py")],
        env: base_env()
            .into_iter()
            .chain([format!("PYTHONPATH={folder}"), "RINGFENCE_PARK=1".to_owned()])
            .collect(),
    };
    let file = |name: &str, content: &str| (format!("{folder}/{name}"), content.into());
    let tool = |name: &str, content: &str| (format!("{OURS}/tools/{name}"), content.into());
    Language {
        warm: if isolate::zygote::IS_WRITTEN { Warm::Fork(zygote) } else { Warm::Park(zygote) },
        pool_size: 8,
        slot_memory: ByteSize::mib(3),
        zygote_memory: ByteSize::mib(32),
        start_time_variables: start_time(&["PYTHON*", "HOME"]),
        files: vec![
            file("sitecustomize.py", include_str!("../../languages/python/park.py")),
            file("zygote.py", include_str!("../../languages/python/zygote.py")),
            file("leave.py", include_str!("../../languages/python/leave.py")),
            tool("runner.py", include_str!("../../languages/tools/runner.py")),
            tool("runner_json.py", include_str!("../../languages/tools/runner_json.py")),
            tool("runner_payload.py", include_str!("../../languages/tools/runner_payload.py")),
            tool("ringfence_tool.py", include_str!("../../languages/tools/ringfence_tool.py")),
            tool(
                "skriptoteket_toolkit.py",
                include_str!("../../languages/tools/skriptoteket_toolkit.py"),
            ),
            tool("tool_errors.py", include_str!("../../languages/tools/tool_errors.py")),
            tool("pdf_helper.py", include_str!("../../languages/tools/pdf_helper.py")),
        ],
        ..row("python", program, "main.py", ByteSize::mib(16))
    }
}

fn javascript(program: String) -> Language {
    let hook = format!("{OURS}/javascript/park.js");
    let code = format!("{WORKSPACE}/main.js");
    let parked = Program {
        argv: vec![program.clone(), "--require".to_owned(), hook.clone(), code],
        env: base_env(),
    };
    Language {
        warm: Warm::Park(parked),
        pool_size: 2,
        slot_memory: ByteSize::mib(16),
        files: vec![(hook, include_str!("../../languages/javascript/park.js").into())],
        start_time_variables: start_time(&["NODE_*", "UV_*", "HOME"]),
        ..row("javascript", program, "main.js", ByteSize::mib(64))
    }
}

fn shell(program: String) -> Language {
    Language {
        warm: Warm::Wait,
        pool_size: 4,
        slot_memory: ByteSize::mib(1),
        ..row("shell", program, "main.sh", ByteSize::mib(16))
    }
}

fn elixir(program: String) -> Language {
    let hook = format!("{OURS}/elixir/park.exs");
    // What the command puts before its own start; without a space, which would split it.
    let options = format!(
        "-eval application:ensure_all_started(elixir),\
         'Elixir.Code':require_file(<<\"{hook}\">>),'Elixir.Ringfence.Park':main()"
    );
    let parked = Program {
        argv: vec![program.clone(), format!("{WORKSPACE}/main.exs")],
        env: base_env().into_iter().chain([format!("ELIXIR_ERL_OPTIONS={options}")]).collect(),
    };
    Language {
        warm: Warm::Park(parked),
        // A start takes a third of a second of a processor: a client in a loop depends on those that wait.
        pool_size: 4,
        slot_memory: ByteSize::mib(40),
        files: vec![(hook, include_str!("../../languages/elixir/park.exs").into())],
        start_time_variables: start_time(&["ERL_*", "ELIXIR_*", "HOME"]),
        ..row("elixir", program, "main.exs", ByteSize::mib(128))
    }
}

fn row(name: &str, program: String, file: &str, min_memory: ByteSize) -> Language {
    Language {
        name: name.to_owned(),
        min_memory,
        command: vec![program, FILE.to_owned()],
        file: file.to_owned(),
        env: Vec::new(),
        warm: Warm::Never,
        pool_size: 0,
        slot_memory: ByteSize::mib(1),
        zygote_memory: ByteSize::default(),
        start_time_variables: Vec::new(),
        files: Vec::new(),
    }
}

fn start_time(own: &[&str]) -> Vec<String> {
    LOADER.iter().chain(own).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use model::pools::{Pool, Room};

    use super::*;

    /// The pool grows by as many as were missing the first time.
    #[test]
    fn a_client_that_runs_elixir_twelve_times_in_a_row_finds_twelve_slots_the_next_time() {
        let room = Room { memory: ByteSize::mib(1024), slots: 1000 };
        let row = elixir("/usr/bin/elixir".to_owned());
        let pool = |size| Pool {
            least: row.pool_size,
            size,
            slot_memory: row.slot_memory,
            base_memory: row.zygote_memory,
        };
        let missing = 12 - row.pool_size;
        let size = (0..missing).fold(row.pool_size, |size, _| pool(size).grown(1, room));
        assert_eq!(size, 12);
    }

    #[test]
    fn every_row_is_among_the_names() {
        let rows = rows(|_| true);
        assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), NAMES);
    }
}
