//! Wake-ups between daemons: one notification for each transaction, one connection that listens. A
//! notification that is lost loses nothing: after each new connection everybody who follows a
//! sandbox looks at the table again.

use std::{future::poll_fn, time::Duration};

use model::{event::Sequence, ids::SandboxId};
use tokio_postgres::{AsyncMessage, Config, Error, NoTls};

use super::session::report;
use crate::{
    tokens::{Changed, Followers},
    watch::Wakeups,
};

const CHANNEL: &str = "ringfence_events";
/// Tells of tokens; what is said is the id of their sandbox.
const TOKENS: &str = "ringfence_tokens";
/// The server refuses 8000 bytes and more.
const LONGEST: usize = 7900;
/// Says that somebody should look at everything.
pub(super) const ALL: &str = "*";

/// The first pause before connecting again; it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The statement that tells others, in the transaction whose commit it tells.
pub(super) const NOTIFY: &str = "SELECT pg_notify('ringfence_events', $1)";
pub(super) const NOTIFY_TOKENS: &str = "SELECT pg_notify('ringfence_tokens', $1)";

/// Writes down which sandboxes have come to which event.
pub(super) fn payload(woken: &[(SandboxId, Sequence)]) -> String {
    let mut text = String::new();
    for (sandbox, latest) in woken {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend([sandbox.as_str(), "=", &latest.to_string()]);
        if text.len() > LONGEST {
            return ALL.to_owned();
        }
    }
    text
}

fn wake(wakeups: &Wakeups, payload: &str) {
    for part in payload.split(',') {
        let told = part.split_once('=').and_then(|(id, latest)| {
            Some((id.parse::<SandboxId>().ok()?, Sequence(latest.parse().ok()?)))
        });
        match told {
            Some((sandbox, latest)) => wakeups.wake(&sandbox, latest),
            None => wakeups.wake_all(),
        }
    }
}

/// Listens as long as the runtime lives.
pub(super) async fn follow(config: Config, wakeups: Wakeups, followers: Followers) {
    let mut pause = PAUSES.0;
    loop {
        let mut heard = false;
        if let Err(error) = listen(&config, &wakeups, &followers, &mut heard).await {
            tracing::warn!(report = report(&error), "the connection for wake-ups broke");
        }
        pause = if heard { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        tokio::time::sleep(pause).await;
    }
}

async fn listen(
    config: &Config,
    wakeups: &Wakeups,
    followers: &Followers,
    heard: &mut bool,
) -> Result<(), Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let mut listening = Box::pin(async {
        let listening = client.batch_execute(&format!("LISTEN {CHANNEL}; LISTEN {TOKENS}")).await;
        listening.map(|()| {
            wakeups.wake_all();
            followers.tell(Changed::Everything);
        })
    });
    let mut is_listening = false;
    loop {
        tokio::select! {
            result = &mut listening, if !is_listening => {
                result?;
                (is_listening, *heard) = (true, true);
            }
            message = poll_fn(|context| connection.poll_message(context)) => {
                match message {
                    Some(Ok(AsyncMessage::Notification(told))) if told.channel() == TOKENS => {
                        let sandbox = told.payload().parse().map(Changed::Sandbox);
                        followers.tell(sandbox.unwrap_or(Changed::Everything));
                    }
                    Some(Ok(AsyncMessage::Notification(told))) => wake(wakeups, told.payload()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_told_is_understood_and_too_much_means_everything() {
        let wakeups = Wakeups::default();
        let woken: Vec<_> = (0..5)
            .map(|number| (SandboxId::from_random([number; 16]), Sequence(u64::from(number))))
            .collect();
        let mut watch = wakeups.watch(woken[3].0.clone());
        wake(&wakeups, &payload(&woken[1..5]));
        watch.changed().await.unwrap();
        assert_eq!(watch.latest(), Sequence(3));
        let many = vec![(SandboxId::from_random([9; 16]), Sequence(1)); 400];
        assert_eq!(payload(&many), ALL);
        wake(&wakeups, &payload(&many));
        watch.changed().await.unwrap();
    }
}
