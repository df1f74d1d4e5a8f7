//! The companions of a sandbox: one task for each has it made, keeps its command running and finds
//! out whether it is healthy. What that means for the sandbox is its own task's to say.

mod body;

use std::sync::Arc;

use model::{
    health::Rules,
    sandbox::Sandbox,
    spec::{Companion, ExecSpec, SandboxSpec},
};
use tokio::sync::{mpsc, watch};

use super::{SandboxError, Shared, command, machine::as_sandbox, paths};
use body::Body;

/// Refuses companions whose commands could not be run. Their images need not be here yet.
pub(super) fn check(spec: &SandboxSpec) -> Result<(), SandboxError> {
    for (place, companion) in spec.companions.iter().enumerate() {
        if paths::root_of(&as_sandbox(companion)).is_some() {
            let message = format!(
                "companion {:?} cannot be made of a folder: pack it as an image (tar:)",
                companion.name
            );
            let field = format!("companion_containers[{place}].image");
            return Err(SandboxError::not_supported(field, message));
        }
        let checked = companion.healthcheck.as_ref().and_then(Rules::of);
        let commands = [Some(companion.command.clone()), checked.map(|rules| rules.command)];
        for command in commands.into_iter().flatten() {
            command::check_main(&SandboxSpec { command, ..as_sandbox(companion) })?;
        }
        for line in &companion.post_start_on_primary {
            let command = vec![line.clone()];
            command::check_main(&SandboxSpec { command, ..spec.clone() })?;
        }
    }
    Ok(())
}

/// Returns how a companion's programs are run, and its own command if it has one. An image says that
/// where the spec does not, as Docker has it; the machine's own programs are run as a sandbox's are.
fn run_of(sandbox: &Sandbox, companion: &Companion, has_users: bool) -> ExecSpec {
    let asked = companion.command.clone();
    let Some(image) = sandbox.life.images.get(&companion.image) else {
        return ExecSpec { command: asked, ..ExecSpec::default() };
    };
    let command = if asked.is_empty() {
        image.command.clone()
    } else {
        image.entrypoint.iter().cloned().chain(asked).collect()
    };
    let user = match image.user.split(':').next().unwrap_or_default() {
        "" => "root",
        user => user,
    };
    let directory = match image.working_directory.as_str() {
        "" => "/",
        directory => directory,
    };
    ExecSpec {
        command,
        working_directory: directory.to_owned(),
        // Where sandboxes have one user it is this one, whatever it is called.
        user: has_users.then(|| user.to_owned()),
        ..ExecSpec::default()
    }
}

/// What becomes of a companion.
#[derive(Debug)]
pub(super) struct News {
    pub(super) number: usize,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Its command runs; whether it is healthy is found out by its check.
    Started,
    /// It runs, and its check has passed if it has one.
    Healthy,
    Failed(String),
}

/// What is wanted of companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Run,
    Stop,
}

/// The companions of one sandbox. Whoever drops this leaves them to themselves.
#[derive(Debug)]
pub(super) struct Companions {
    wish: watch::Sender<Wish>,
    news: mpsc::Receiver<News>,
}

impl Companions {
    /// Finds the companions of a sandbox whose supervisor is there, and has those made that are not there.
    pub(super) fn begin(shared: &Arc<Shared>, sandbox: &Sandbox) -> Self {
        let (wish, wished) = watch::channel(Wish::Run);
        let count = sandbox.spec.companions.len();
        // Each has at most three things to say.
        let (tell, news) = mpsc::channel(3 * count.max(1));
        for (number, companion) in sandbox.spec.companions.iter().enumerate() {
            let told = sandbox.life.companions.get(&companion.name).copied();
            let (wished, tell) = (wished.clone(), tell.clone());
            let body = Body::new(Arc::clone(shared), sandbox.clone(), number, told, wished, tell);
            if let Some(body) = body {
                shared.tasks.start("companion", body.run());
            }
        }
        Self { wish, news }
    }

    /// Returns what becomes of one of them, when something does.
    pub(super) async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Asks their processes to end.
    pub(super) fn stop(&self) {
        self.wish.send_replace(Wish::Stop);
    }

    /// Leaves them to themselves. When this returns nothing more is done about them.
    pub(super) async fn let_go(self) {
        let Self { wish, mut news } = self;
        drop(wish);
        while news.recv().await.is_some() {}
    }

    /// Returns when they have ended, or have had their time for it.
    pub(super) async fn stopped(mut self) {
        self.stop();
        while self.news.recv().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use model::{image::UsedImage, transition::Creation, units::Timestamp};

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_image_says_how_its_programs_are_run_where_the_spec_does_not() {
        let creation = Creation::new(
            model::ids::SandboxId::from_random([1; 16]),
            "default".parse().unwrap(),
            None,
            "node".parse().unwrap(),
            SandboxSpec::default(),
            Timestamp::from_millis(0),
        );
        let mut sandbox = creation.into_sandbox();
        let image = UsedImage {
            command: words(&["entry", "default"]),
            entrypoint: words(&["entry"]),
            user: "999:998".to_owned(),
            ..UsedImage::default()
        };
        sandbox.life.images.insert("db:1".to_owned(), image);
        let companion = |image: &str, command: &[&str]| Companion {
            image: image.to_owned(),
            command: words(command),
            ..Companion::default()
        };
        let ran = |image, command, has_users| {
            let run = run_of(&sandbox, &companion(image, command), has_users);
            (run.command.join(" "), run.working_directory, run.user)
        };
        let number = Some("999".to_owned());
        assert_eq!(ran("db:1", &[], true), ("entry default".into(), "/".into(), number.clone()));
        assert_eq!(ran("db:1", &["own"], true), ("entry own".into(), "/".into(), number));
        assert_eq!(ran("db:1", &["own"], false), ("entry own".into(), "/".into(), None));
        assert_eq!(ran("host", &["own"], true), ("own".into(), String::new(), None));
    }
}
