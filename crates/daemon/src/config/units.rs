//! Durations and sizes as people write them.

/// `10s`, `500ms`, `1h 30m`.
pub(super) mod duration {
    use std::time::Duration;

    use jiff::SignedDuration;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let signed = SignedDuration::try_from(*duration).unwrap_or(SignedDuration::MAX);
        serializer.collect_str(&format_args!("{signed:#}"))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        read(&text)
            .ok_or_else(|| D::Error::custom("expected a duration such as \"10s\" or \"500ms\""))
    }

    pub(in super::super) fn read(text: &str) -> Option<Duration> {
        let signed: SignedDuration = text.parse().ok()?;
        Duration::try_from(signed).ok()
    }
}

/// `64MiB`, `4GiB`, `1024B`.
pub(super) mod size {
    use model::units::ByteSize;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    const UNITS: [(&str, u64); 4] =
        [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(in super::super) fn serialize<S: Serializer>(
        size: &ByteSize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bytes = size.as_bytes();
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        serializer.collect_str(&format_args!("{}{unit}", bytes / factor))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<ByteSize, D::Error> {
        let text = String::deserialize(deserializer)?;
        read(&text).ok_or_else(|| D::Error::custom("expected a size such as \"64MiB\""))
    }

    fn read(text: &str) -> Option<ByteSize> {
        let (number, factor) = UNITS
            .into_iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
        let number: u64 = number.trim_end().parse().ok()?;
        number.checked_mul(factor).map(ByteSize::bytes)
    }
}

/// A size, or nothing.
pub(super) mod optional_size {
    use model::units::ByteSize;
    use serde::{Deserializer, Serializer};

    use super::size;

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(in super::super) fn serialize<S: Serializer>(
        size: &Option<ByteSize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match size {
            Some(size) => size::serialize(size, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// What is there is a size; what is not never comes here.
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ByteSize>, D::Error> {
        size::deserialize(deserializer).map(Some)
    }
}

/// A duration, or nothing.
pub(super) mod optional_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::duration;

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(in super::super) fn serialize<S: Serializer>(
        length: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => duration::serialize(length, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// What is there is a duration; what is not never comes here.
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        duration::deserialize(deserializer).map(Some)
    }
}
