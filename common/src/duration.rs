//! How durations are written: as text in configuration (`"15m"`), as seconds in the API, as milliseconds in messages and
//! in the store. Each module is a `#[serde(with)]`.

use std::time::Duration;

/// Formats a duration as it is written in configuration, with days as the largest unit: `90days`, `1h 30m`, `250ms`.
pub fn as_text(value: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    let (days, rest) = (value.as_secs() / DAY, Duration::new(value.as_secs() % DAY, value.subsec_nanos()));
    let unit = if days == 1 { "day" } else { "days" };
    match (days, rest.is_zero()) {
        (0, _) => humantime::format_duration(rest).to_string(),
        (_, true) => format!("{days}{unit}"),
        (_, false) => format!("{days}{unit} {}", humantime::format_duration(rest)),
    }
}

/// Text such as `"15m"`, `"1h 30m"`, `"250ms"`.
pub mod text {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::optional_text;

    /// Writes the text.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        // Of this text the hash of an accepted policy is made: it has to stay as it is.
        serializer.collect_str(&humantime::format_duration(*value))
    }

    /// Reads the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let value = optional_text::deserialize(deserializer)?;
        value.ok_or_else(|| serde::de::Error::custom("a duration is missing, such as \"15m\""))
    }
}

/// The same, optional.
pub mod optional_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Writes the text, or null.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::text::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let value = humantime::parse_duration(&text).map_err(|_| {
            de::Error::custom(format!("'{text}' is not a duration; write one like \"15m\" or \"250ms\""))
        })?;
        Ok(Some(value))
    }
}

/// Seconds as a number, including fractions; optional.
pub mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    /// Writes the number, or null.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.as_secs_f64()).serialize(serializer)
    }

    /// Reads the number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(seconds) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
        let value = Duration::try_from_secs_f64(seconds)
            .map_err(|_| de::Error::custom(format!("{seconds} is not a duration in seconds")))?;
        Ok(Some(value))
    }
}

/// Whole milliseconds.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the number; saturates.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(value.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    /// Reads the number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Whole milliseconds, optional.
pub mod optional_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the number, or null.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| u64::try_from(value.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    /// Reads the number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_the_largest_unit_of_a_text_and_every_text_is_read_back() {
        for (millis, text) in [
            (0, "0s"),
            (250, "250ms"),
            (5_400_000, "1h 30m"),
            (86_399_999, "23h 59m 59s 999ms"),
            (86_400_000, "1day"),
            (86_401_500, "1day 1s 500ms"),
            (90 * 86_400_000, "90days"),
            (365 * 86_400_000, "365days"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(as_text(duration), text);
            assert_eq!(humantime::parse_duration(text), Ok(duration));
        }
    }
}
