//! Ids of the editor protocol: UUIDs of version 4, as its clients expect.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The text is no UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is a UUID such as 6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7a")]
pub struct NotAUuid;

/// A UUID in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Uuid(String);

impl Uuid {
    fn from_random(mut random: [u8; 16]) -> Self {
        // The version and the variant of RFC 9562.
        random[6] = (random[6] & 0x0f) | 0x40;
        random[8] = (random[8] & 0x3f) | 0x80;
        let mut text = String::with_capacity(36);
        for (index, byte) in random.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 0x0f] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        Self(text)
    }
}

impl FromStr for Uuid {
    type Err = NotAUuid;

    fn from_str(text: &str) -> Result<Self, NotAUuid> {
        let is_uuid = text.len() == 36
            && text.bytes().enumerate().all(|(index, byte)| match index {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if is_uuid { Ok(Self(text.to_ascii_lowercase())) } else { Err(NotAUuid) }
    }
}

impl TryFrom<String> for Uuid {
    type Error = NotAUuid;

    fn try_from(text: String) -> Result<Self, NotAUuid> {
        text.parse()
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.0
    }
}

macro_rules! uuids {
    ($($(#[$doc:meta])* $name:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub fn from_random(random: [u8; 16]) -> Self {
                Self(Uuid::from_random(random))
            }

            pub fn as_str(&self) -> &str {
                &self.0.0
            }
        }

        impl FromStr for $name {
            type Err = NotAUuid;

            fn from_str(text: &str) -> Result<Self, NotAUuid> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+ };
}

uuids! {
    /// Names a tool.
    ToolId;
    /// Names a version of a tool.
    VersionId;
    /// Names a snapshot of a draft.
    DraftSnapshotId;
    /// Names a run of a tool.
    RunId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_random_bytes_is_a_uuid_of_version_4() {
        let id = RunId::from_random([0xff; 16]);
        assert_eq!(id.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.as_str().parse(), Ok(id));
        let id = RunId::from_random([0; 16]);
        assert_eq!(id.as_str(), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn ids_are_read_in_either_case_and_only_in_one_form() {
        let upper: ToolId = "6F1B6D3E-0C1F-4A55-9A4E-2F1D8F0C9B7A".parse().unwrap();
        assert_eq!(upper.as_str(), "6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7a");
        for text in [
            "",
            "6f1b6d3e0c1f4a559a4e2f1d8f0c9b7a",
            "6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7",
            "6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7aa",
            "6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7g",
            "6f1b6d3e 0c1f-4a55-9a4e-2f1d8f0c9b7a",
            "../../6f1b6d3e-0c1f-4a55-9a4e-2f1d8f",
        ] {
            assert_eq!(text.parse::<ToolId>(), Err(NotAUuid), "{text:?}");
        }
    }
}
