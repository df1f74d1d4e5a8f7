//! `ringfence run`.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use client::{
    address::Address,
    executions::{self, Ended, Fresh, Request, Status, Update},
};
use daemon::clock;
use tokio::signal::ctrl_c;

use crate::{
    arguments::{read_timeout, read_variable},
    output::{OUR_FAILURE, complain, pass_on, say},
    private,
    server::Server,
};

/// Runs code in a fresh isolated environment and streams its output.
///
/// Uses the server that is running, or starts one for this call.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence run hello.py
  ringfence run -c 'console.log(1 + 1)' --language javascript
  echo 'echo $NAME' | ringfence run - --language shell --env NAME=world
  ringfence run sum.py --stdin numbers.txt --timeout 5s --memory 128

Exit codes: the program's own; 128 + N if signal N killed it; 124 if it ran out of time; 137 if it
ran out of memory; 130 if it was cancelled; 125 if it could not be run.")]
pub(crate) struct Run {
    /// A file with the code, or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "code", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The code itself
    #[arg(short = 'c', long, value_name = "CODE", allow_hyphen_values = true)]
    code: Option<String>,
    /// python, javascript, shell or elixir [default: by the file's extension]
    #[arg(short, long)]
    language: Option<String>,
    /// How long it may run, such as 30s or 500ms
    #[arg(short, long, default_value = "30s", value_parser = read_timeout)]
    timeout: Duration,
    /// How much memory it may use, in MiB
    #[arg(short, long, default_value_t = 256, value_name = "MIB")]
    memory: u64,
    /// An environment variable; may be given many times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = read_variable)]
    env: Vec<(String, String)>,
    /// A file to give the program as standard input, or - for our own
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// The most output, in bytes [default: 1 MiB]
    #[arg(long, value_name = "BYTES")]
    max_output: Option<u64>,
    /// Share nothing with other runs, not even a warm interpreter
    #[arg(long)]
    strict: bool,
    /// Write the server's messages as lines of JSON instead of the program's output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let request = self.request()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if let Some(code) = runtime.block_on(self.on_running_server(&request))? {
            return Ok(code);
        }
        let private = private::start()?;
        let address = Address::parse(&private.url)?;
        runtime.block_on(self.on(&address, &private.key, request))
    }

    /// Runs on the server that is there. Returns nothing if none is, and none was named.
    async fn on_running_server(&self, request: &Request) -> anyhow::Result<Option<ExitCode>> {
        let address = self.server.address()?;
        if !self.server.is_named() && !address.answers().await {
            return Ok(None);
        }
        let key = self.server.key()?;
        self.on(&address, &key, request.clone()).await.map(Some)
    }

    async fn on(&self, address: &Address, key: &str, request: Request) -> anyhow::Result<ExitCode> {
        let mut run = executions::Run::start(address, key, request, &clock::stamp()).await?;
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                told = run.next() => {
                    let Some(told) = told? else { return Ok(ExitCode::from(OUR_FAILURE)) };
                    if self.json {
                        say(&told.json)?;
                    }
                    if let Some(code) = self.show(&told.update)? {
                        return Ok(code);
                    }
                }
                pressed = ctrl_c() => {
                    pressed?;
                    if is_cancelled {
                        return Ok(ExitCode::from(130));
                    }
                    is_cancelled = true;
                    run.cancel(&clock::stamp()).await?;
                }
            }
        }
    }

    /// Shows what happened; returns the exit code if that was the end.
    fn show(&self, update: &Update) -> anyhow::Result<Option<ExitCode>> {
        match update {
            Update::Accepted | Update::Started | Update::Over(_) => {}
            Update::Stdout(_) | Update::Stderr(_) if self.json => {}
            Update::Stdout(text) => pass_on(io::stdout(), text)?,
            Update::Stderr(text) => pass_on(io::stderr(), text)?,
            Update::Warning(text) => complain(text),
            Update::Ended(ended) => {
                if let Some(line) = explain(ended) {
                    complain(&line);
                }
                return Ok(Some(exit_code(ended)));
            }
            Update::Refused { code, message } => {
                complain(&format!("{message} ({code})"));
                return Ok(Some(ExitCode::from(OUR_FAILURE)));
            }
        }
        Ok(None)
    }

    fn request(&self) -> anyhow::Result<Request> {
        let is_from_stdin = self.file.as_deref() == Some(Path::new("-"));
        if is_from_stdin && self.stdin.as_deref() == Some(Path::new("-")) {
            bail!("standard input cannot be both the code and the program's input");
        }
        Ok(Request {
            language: self.language()?,
            code: match (&self.code, &self.file) {
                (Some(code), _) => code.clone(),
                (None, Some(file)) => read(file)?,
                (None, None) => bail!("give a file, or code with -c"),
            },
            stdin: self.stdin.as_deref().map(read).transpose()?,
            env: self.env.clone(),
            timeout: self.timeout,
            memory_mb: self.memory,
            max_output_bytes: self.max_output,
            freshness: if self.strict { Fresh::Strict } else { Fresh::Shared },
        })
    }

    fn language(&self) -> anyhow::Result<String> {
        if let Some(language) = &self.language {
            return Ok(language.clone());
        }
        let extension = self.file.as_deref().and_then(Path::extension);
        let language = match extension.and_then(|extension| extension.to_str()) {
            Some("py") => "python",
            Some("js" | "mjs") => "javascript",
            Some("sh") => "shell",
            Some("ex" | "exs") => "elixir",
            Some(_) | None => {
                bail!("say which language this is with --language python, javascript, …")
            }
        };
        Ok(language.to_owned())
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8 text", path.display()))
}

/// Says in a line why a program ended, if not by itself.
fn explain(ended: &Ended) -> Option<String> {
    match ended.status {
        Status::Completed | Status::Failed => {
            ended.signal.as_ref().map(|signal| format!("killed by SIG{signal}"))
        }
        Status::Cancelled => Some("cancelled".to_owned()),
        Status::Timeout => {
            Some(format!("timed out after {} ms; see --timeout", ended.duration.as_millis()))
        }
        Status::Oom => Some("out of memory; see --memory".to_owned()),
    }
}

fn exit_code(ended: &Ended) -> ExitCode {
    let code = match ended.status {
        Status::Timeout => 124,
        Status::Oom => 137,
        Status::Cancelled => 130,
        Status::Completed | Status::Failed => match (ended.exit_code, ended.signal_number) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(1),
            (None, Some(number)) => u8::try_from(128 + number).unwrap_or(255),
            (None, None) => 1,
        },
    };
    ExitCode::from(code)
}
