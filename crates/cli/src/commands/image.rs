//! `ringfence image`.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use client::images::{Image as Shown, Images, PullProgress, Step};
use serde_json::{Value, json};

use crate::{
    output::{complain, say},
    sandboxes::{Interrupt, address, block_on, explain},
    server::Server,
    shown::{columns, plain},
};

/// Brings images to the server, lists them and takes them away.
///
/// A sandbox brings the image that it is made of by itself. Pulling it before makes its creation
/// fast, and pulling it again brings what is here up to date; sandboxes keep what they were made of.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence image pull docker.io/library/python:3.12
  ringfence image list
  ringfence image rm docker.io/library/python:3.12
  ringfence image list --json | jq -r '.images[].names[]'

JSON: pull writes one line {bytes_done, bytes_total, layers_done, layers_total} now and then, and
then the image {id, manifest, names, size}; list {images: [...]}; rm {images_deleted,
layers_deleted, bytes_deleted}.

Exit codes: 0; 130 and 143 if a pull was interrupted; 125 if it could not be done.")]
pub(crate) struct Image {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
    /// Write JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring an image here, or bring what is here up to date
    Pull {
        /// Such as docker.io/library/python:3.12
        name: String,
    },
    /// List the images that are here
    #[command(visible_alias = "ls")]
    List,
    /// Take names of images away; what nobody needs any more is deleted
    Rm {
        /// Names, or ids: then all names of that image
        #[arg(required = true)]
        names: Vec<String>,
    },
}

impl Image {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let images = Images::connect(&address(&self.server).await?, &self.server.key()?).await?;
        match &self.action {
            Action::Pull { name } => return self.pull(&images, name).await,
            Action::List => self.list(&images).await?,
            Action::Rm { names } => {
                for name in names {
                    self.remove(&images, name).await?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn pull(&self, images: &Images, name: &str) -> anyhow::Result<ExitCode> {
        let mut interrupt = Interrupt::new()?;
        let mut pull = images.pull(name).await.map_err(|error| explain(error, name))?;
        let mut line = Line::new(self.json);
        loop {
            let step = tokio::select! {
                step = pull.next() => step,
                code = interrupt.next() => {
                    line.end();
                    return Ok(ExitCode::from(code));
                }
            };
            match step {
                Ok(Step::Progress(progress)) => line.show(&progress)?,
                Ok(Step::Here(image)) => {
                    line.end();
                    let shown = image_json(&image).to_string();
                    say(if self.json { &shown } else { &image.id })?;
                    return Ok(ExitCode::SUCCESS);
                }
                Err(error) => {
                    line.end();
                    return Err(explain(error, name));
                }
            }
        }
    }

    async fn list(&self, images: &Images) -> anyhow::Result<()> {
        let listed = images.list().await.map_err(|error| explain(error, ""))?;
        if self.json {
            let listed: Vec<Value> = listed.iter().map(image_json).collect();
            return Ok(say(&json!({ "images": listed }).to_string())?);
        }
        for line in table(&listed) {
            say(&line)?;
        }
        Ok(())
    }

    async fn remove(&self, images: &Images, name: &str) -> anyhow::Result<()> {
        let removed = images.remove(name).await.map_err(|error| explain(error, name))?;
        if self.json {
            let done = json!({
                "images_deleted": removed.images_deleted,
                "layers_deleted": removed.layers_deleted,
                "bytes_deleted": removed.bytes_deleted,
            });
            return Ok(say(&done.to_string())?);
        }
        let (layers, bytes) = (removed.layers_deleted, size(removed.bytes_deleted));
        Ok(say(&format!("{name}  {layers} layers deleted, {bytes}"))?)
    }
}

fn image_json(image: &Shown) -> Value {
    let manifest = (!image.manifest.is_empty()).then_some(&image.manifest);
    json!({ "id": image.id, "manifest": manifest, "names": image.names, "size": image.size })
}

/// One line for each name. An image that a sandbox was made of may have none any more.
fn table(images: &[Shown]) -> Vec<String> {
    let mut rows = vec![["NAME", "ID", "SIZE"].map(str::to_owned)];
    for image in images {
        let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
        let nameless = ["-".to_owned()];
        let names = if image.names.is_empty() { &nameless[..] } else { &image.names };
        rows.extend(names.iter().map(|name| [plain(name), id.clone(), size(image.size)]));
    }
    columns(&rows)
}

/// Writes a number of bytes as people do.
fn size(bytes: u64) -> String {
    let mut unit = 1;
    for name in ["B", "kB", "MB", "GB"] {
        if bytes / unit < 1000 {
            let tenths = if unit == 1 { 0 } else { bytes % unit * 10 / unit };
            let tenths = if unit == 1 { String::new() } else { format!(".{tenths}") };
            return format!("{}{tenths} {name}", bytes / unit);
        }
        unit *= 1000;
    }
    format!("{} TB", bytes / unit)
}

/// Where progress is shown: a line that changes on a terminal, else a few lines.
struct Line {
    is_json: bool,
    is_terminal: bool,
    /// Tenths that were told, where lines do not change.
    told: Option<u64>,
}

const BAR: u64 = 30;

impl Line {
    fn new(is_json: bool) -> Self {
        Self { is_json, is_terminal: stderr().is_terminal(), told: None }
    }

    fn show(&mut self, progress: &PullProgress) -> anyhow::Result<()> {
        let tenth = tenth(progress);
        if self.is_json {
            let PullProgress { bytes_done, bytes_total, layers_done, layers_total } = progress;
            let told = json!({
                "bytes_done": bytes_done, "bytes_total": bytes_total,
                "layers_done": layers_done, "layers_total": layers_total,
            });
            say(&told.to_string())?;
        } else if self.is_terminal {
            // There is nowhere to complain if the terminal is gone.
            let _ = write!(stderr(), "\r{}\x1b[K", bar(progress));
            self.told = Some(tenth);
        } else if self.told.is_none_or(|told| told < tenth) {
            complain(&words(progress));
            self.told = Some(tenth);
        }
        Ok(())
    }

    /// Leaves the line of a bar.
    fn end(&self) {
        if self.is_terminal && self.told.is_some() {
            let _ = writeln!(stderr());
        }
    }
}

fn tenth(progress: &PullProgress) -> u64 {
    progress.bytes_done.saturating_mul(10) / progress.bytes_total.max(1)
}

fn words(progress: &PullProgress) -> String {
    let PullProgress { bytes_done, bytes_total, layers_done, layers_total } = progress;
    let (done, total) = (size(*bytes_done), size(*bytes_total));
    format!("{done} of {total}, {layers_done} of {layers_total} layers")
}

fn bar(progress: &PullProgress) -> String {
    let done = progress.bytes_done.saturating_mul(BAR) / progress.bytes_total.max(1);
    let done = usize::try_from(done.min(BAR)).unwrap_or_default();
    let left = usize::try_from(BAR).unwrap_or_default() - done;
    format!("[{}{}] {}", "#".repeat(done), "-".repeat(left), words(progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        let told = [0, 999, 1000, 1_250_000, 2_999_999_999, 7_000_000_000_000].map(size);
        assert_eq!(told, ["0 B", "999 B", "1.0 kB", "1.2 MB", "2.9 GB", "7 TB"]);
    }

    #[test]
    fn the_bar_is_as_long_as_what_is_done() {
        let progress = |bytes_done, bytes_total| PullProgress {
            bytes_done,
            bytes_total,
            layers_done: 1,
            layers_total: 2,
        };
        let half = format!("[{}{}] 5 B of 10 B, 1 of 2 layers", "#".repeat(15), "-".repeat(15));
        assert_eq!(bar(&progress(5, 10)), half);
        assert!(bar(&progress(0, 0)).starts_with("[---"));
        assert!(bar(&progress(20, 10)).starts_with(&format!("[{}]", "#".repeat(30))));
    }

    #[test]
    fn every_name_has_a_line_and_drives_no_terminal() {
        let image = |names: &[&str]| Shown {
            id: format!("sha256:{}", "ab".repeat(32)),
            manifest: String::new(),
            names: names.iter().map(ToString::to_string).collect(),
            size: 2000,
        };
        let expected = [
            "NAME  ID            SIZE",
            "a:1   abababababab  2.0 kB",
            "b\u{fffd}:2  abababababab  2.0 kB",
            "-     abababababab  2.0 kB",
        ];
        assert_eq!(table(&[image(&["a:1", "b\u{7}:2"]), image(&[])]), expected);
    }
}
