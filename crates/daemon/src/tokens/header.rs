//! The header of a token. There is one for each key, and it is compared, not interpreted.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::ids::SandboxId;

const BEGINNING: &str = r#"{"alg":"HS256","typ":"JWT","kid":""#;
const END: &str = r#""}"#;
const FIRST_MASTER: u32 = 1;
/// The longest that can be one of ours.
const MAX_BYTES: usize = 128;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sandbox: SandboxId,
    pub(super) epoch: u32,
    /// The number of the master key.
    pub(super) master: u32,
    pub(super) key_name: String,
}

/// Names a key. The first master key is not named, as in tokens from before there could be another.
pub(super) fn key_name(sandbox: &SandboxId, epoch: u32, master: u32) -> String {
    match master {
        FIRST_MASTER => format!("{sandbox}.{epoch}"),
        _ => format!("{sandbox}.{epoch}.{master}"),
    }
}

pub(super) fn write(key_name: &str) -> String {
    format!("{BEGINNING}{key_name}{END}")
}

/// Reads the encoded header. Whatever differs from what we write, in a single byte, is none.
pub(super) fn read(encoded: &str) -> Option<Header> {
    if encoded.len() > MAX_BYTES {
        return None;
    }
    let mut buffer = [0; MAX_BYTES];
    let length = URL_SAFE_NO_PAD.decode_slice(encoded, &mut buffer).ok()?;
    let text = str::from_utf8(buffer.get(..length)?).ok()?;
    let found = text.strip_prefix(BEGINNING)?.strip_suffix(END)?;
    let (sandbox, numbers) = found.split_once('.')?;
    let (epoch, master) = match numbers.split_once('.') {
        Some((epoch, master)) => (epoch, master.parse().ok()?),
        None => (numbers, FIRST_MASTER),
    };
    let (sandbox, epoch): (SandboxId, u32) = (sandbox.parse().ok()?, epoch.parse().ok()?);
    let key_name = key_name(&sandbox, epoch, master);
    // A number can be written in several ways; we write it in one.
    (key_name == found).then_some(Header { sandbox, epoch, master, key_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_as_we_write_them_are_read() {
        let sandbox = SandboxId::from_random([3; 16]);
        let ours = write(&key_name(&sandbox, 1, 1));
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let read_back = read(&encode(&ours)).unwrap();
        assert_eq!((read_back.sandbox, read_back.epoch), (sandbox.clone(), 1));
        for (epoch, master) in [(1, 2), (u32::MAX, u32::MAX), (7, 1)] {
            let later = read(&encode(&write(&key_name(&sandbox, epoch, master)))).unwrap();
            assert_eq!((later.epoch, later.master), (epoch, master));
        }
        let id = sandbox.as_str();
        let kid = format!("\"kid\":\"{id}.1\"");
        let foreign = [
            format!(r#"{{"alg":"none","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"None","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"hs256","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"RS256","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"ES256","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"HS512","typ":"JWT",{kid}}}"#),
            format!(r#"{{"alg":"HS256","typ":"at+jwt",{kid}}}"#),
            format!(r#"{{"alg":"HS256",{kid}}}"#),
            format!(r#"{{"typ":"JWT","alg":"HS256",{kid}}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT", {kid}}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT",{kid},"jku":"https://x"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT",{kid},"crit":["b64"],"b64":false}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT",{kid},{kid}}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.01"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.1.1"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.1.02"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.1.2.3"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.+1"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.4294967296"}}"#),
            format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{id}.1\u0000"}}"#),
            r#"{"alg":"HS256","typ":"JWT","kid":"../../dev/null"}"#.to_owned(),
            r#"{"alg":"HS256","typ":"JWT","kid":"' OR 1=1"}"#.to_owned(),
            r#"{"alg":"HS256","typ":"JWT","kid":""}"#.to_owned(),
            r#"{"alg":"HS256","typ":"JWT"}"#.to_owned(),
            format!("{ours}\n"),
            format!(" {ours}"),
            format!("\u{feff}{ours}"),
            "{}".to_owned(),
            String::new(),
        ];
        for header in foreign {
            assert_eq!(read(&encode(&header)), None, "{header}");
        }
        for encoded in [format!("{}=", encode(&ours)), "x".repeat(1 << 20), "é".to_owned()] {
            assert_eq!(read(&encoded), None);
        }
    }
}
