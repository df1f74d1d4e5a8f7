use model::{
    actor::{Actor, ActorKind},
    audit::{Action, Grant, Outcome},
    units::Timestamp,
};

use super::*;

/// A source of numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

fn entry(number: i64) -> Entry {
    let actions = Action::ALL;
    let action = actions[usize::try_from(number).unwrap() % actions.len()];
    let grant = (action == Action::TokenMint).then(|| Grant {
        subject: "human:ada".into(),
        audience: "sb_1".into(),
        capabilities: "fs:rw process".into(),
        expires_at: Timestamp::from_millis(number + 900_000),
    });
    Entry {
        request: Some(format!("req_{number}")),
        actor: Some(Actor { kind: ActorKind::Human, id: "ada \"größer\" \\ 北".into() }),
        key: Some("key_1".into()),
        tenant: Some("default".into()),
        sandbox: (number % 2 == 0).then(|| "sb_1".into()),
        jti: (number % 3 == 0).then(|| format!("tok_{number}")),
        grant,
        ..Entry::new(Timestamp::from_millis(1_800_000_000_000 + number), action, Outcome::Granted)
    }
}

fn lines(count: i64) -> Vec<String> {
    let entries: Vec<Entry> = (0..count).map(entry).collect();
    let (rows, _) = Row::chain(Link::START, &entries).unwrap();
    rows.into_iter().map(|row| row.read().unwrap().line().unwrap()).collect()
}

fn verify(lines: &[String], checkpoint: Option<Link>) -> Result<Link, Broken> {
    let mut chain = Chain::after(Link::START).with_checkpoints(checkpoint.into_iter().collect());
    for line in lines {
        chain.add(line)?;
    }
    chain.end()
}

/// What was exported once is verified by every later version.
#[test]
fn a_record_is_written_as_it_always_was() {
    let line = &lines(3)[2];
    assert_eq!(
        line,
        concat!(
            r#"{"action":"token.mint","actor_id":"ada \"größer\" \\ 北","actor_type":"human","#,
            r#""audience":"sb_1","capabilities":"fs:rw process","expires_at":900002,"#,
            r#""hash":"e20ddf3915017660594513d18207b4142e53075699f25749650c0e579a4a2189","#,
            r#""key_id":"key_1","outcome":"granted","#,
            r#""previous":"2dea3f3ab270440ee29cf9ce8df73c02108d5a7776d72285c0e145afec62e965","#,
            r#""request_id":"req_2","sandbox":"sb_1","sequence":3,"subject":"human:ada","#,
            r#""tenant":"default","time":1800000000002}"#
        )
    );
}

#[test]
fn a_whole_log_is_verified_and_says_where_it_ends() {
    let lines = lines(50);
    let end = verify(&lines, None).unwrap();
    assert_eq!(end.sequence, 50);
    assert_eq!(end.to_string().parse(), Ok(end));
    assert_eq!(verify(&lines, Some(end)), Ok(end));
    assert_eq!(verify(&[], None), Ok(Link::START));
    let mut rest = Chain::after(verify(&lines[..20], None).unwrap());
    lines[20..].iter().try_for_each(|line| rest.add(line).map(drop)).unwrap();
    assert_eq!(rest.end(), Ok(end));
    for bad in
        ["", "1", "x:00", "1:0", &format!("-1:{}", Hash::NONE), &format!("1:{}", "G".repeat(64))]
    {
        assert_eq!(bad.parse::<Link>(), Err(NotALink), "{bad}");
    }
}

/// SQ7: flips, omissions, insertions and moves, by chance. The first record that is not as it was
/// written is named.
#[test]
fn ten_thousand_random_changes_are_all_noticed_where_they_are() {
    let good = lines(16);
    let mut dice = Dice(7);
    for round in 0..10_000 {
        let mut bad = good.clone();
        let at = dice.below(bad.len() - 1);
        match round % 5 {
            0 => {
                let mut bytes = bad[at].clone().into_bytes();
                let place = dice.below(bytes.len());
                bytes[place] ^= 1 << dice.below(7);
                bad[at] = String::from_utf8_lossy(&bytes).into_owned();
            }
            1 => drop(bad.remove(at)),
            2 => {
                let copy = bad[dice.below(bad.len())].clone();
                if copy == bad[at] {
                    continue;
                }
                bad.insert(at, copy);
            }
            3 => {
                let other = at + 1 + dice.below(bad.len() - at - 1);
                bad.swap(at, other);
            }
            // Somebody who changes a record and makes its own hash fit.
            _ => {
                let record: Record = serde_json::from_str(&bad[at]).unwrap();
                let reason = Some(format!("changed {round}"));
                let record = Record { reason, hash: None, ..record };
                let hash = Hash(Sha256::digest(record.line().unwrap()).into());
                bad[at] = Record { hash: Some(hash.to_string()), ..record }.line().unwrap();
            }
        }
        let broken = verify(&bad, None).expect_err("it was changed");
        let first = u64::try_from(at).unwrap() + 1;
        let named = if round % 5 == 4 { first + 1 } else { first };
        assert_eq!(broken.sequence(), named, "round {round}: {broken}");
    }
}

#[test]
fn a_log_that_was_cut_off_or_written_anew_does_not_fit_its_checkpoint() {
    let good = lines(30);
    let checkpoint = verify(&good, None).unwrap();
    for cut in 0..30 {
        let broken = verify(&good[..cut], Some(checkpoint)).unwrap_err();
        let sequence = u64::try_from(cut).unwrap() + 1;
        assert_eq!(broken, Broken::Cut { sequence, checkpoint: 30 });
    }
    let mut entries: Vec<Entry> = (0..30).map(entry).collect();
    entries[3].outcome = Outcome::Denied;
    let (rows, _) = Row::chain(Link::START, &entries).unwrap();
    let anew: Vec<String> =
        rows.into_iter().map(|row| row.read().unwrap().line().unwrap()).collect();
    verify(&anew, None).unwrap();
    assert_eq!(verify(&anew, Some(checkpoint)), Err(Broken::Checkpoint { sequence: 30 }));
}

/// ASVS 16.4.1.
#[test]
fn hostile_texts_stay_in_their_line_and_their_field() {
    let corpus = [
        "\n{\"action\":\"key.create\"}",
        "\r\n\r\nHTTP/1.1 200 OK",
        "\",\"outcome\":\"granted\",\"x\":\"",
        "\\\",\\\"sequence\\\":9",
        "\u{1b}]0;title\u{7}\u{1b}[2J",
        "%0a%0d",
        "\u{2028}\u{2029}\u{85}",
        "\u{202e}gnp.exe",
        "${jndi:ldap://x}",
        "'; DROP TABLE audit; --",
        "\0",
        "\u{feff}\u{fffe}",
    ];
    let entries: Vec<Entry> = corpus
        .iter()
        .map(|text| Entry {
            actor: Some(Actor { kind: ActorKind::Agent, id: (*text).into() }),
            scope: Some(format!("thread:{text}")),
            reason: Some((*text).repeat(100)),
            tenant: Some((*text).into()),
            ..entry(1)
        })
        .collect();
    let (rows, _) = Row::chain(Link::START, &entries).unwrap();
    let lines: Vec<String> =
        rows.into_iter().map(|row| row.read().unwrap().line().unwrap()).collect();
    verify(&lines, None).unwrap();
    for line in &lines {
        assert!(!line.contains(char::is_control) && line.len() < 4096, "{line}");
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!((record.outcome.as_str(), record.action.as_str()), ("granted", "key.revoke"));
    }
}
