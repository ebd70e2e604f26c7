//! "Did you mean": finds the known name that is nearest to an unknown one, and the names of a type's fields.
//!
//! Used wherever people type names: configuration keys, environment variables, JSON fields.

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// How similar two names must be, 0 to 1, to be suggested.
const ALIKE: f64 = 0.6;
/// Bytes of a name that is compared, at most: comparing takes time in proportion to the product of both lengths, and no known name
/// is nearly as long.
const LONGEST: usize = 64;

/// Returns the candidate most similar to `name`, if one is similar enough. For dotted candidates the last part alone
/// may match too: `salt` finds `policy.salt`. A name that is much longer than any candidate has none.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let likeness = |candidate: &str| {
        let whole = strsim::normalized_damerau_levenshtein(name, candidate);
        let last = |dotted: &str| dotted.rsplit('.').next().unwrap_or_default().to_owned();
        let part = strsim::normalized_damerau_levenshtein(&last(name), &last(candidate));
        whole.max(0.95 * part)
    };
    let scored = candidates.into_iter().map(|candidate| (likeness(candidate), candidate));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}

/// Returns the field names that `T` deserialises, as serde knows them; empty if `T` is not a struct.
pub fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(FieldNames) {
        Err(Asked(names)) => names,
        Ok(_) => &[],
    }
}

/// A deserialiser that fails with the fields that are requested of it.
struct FieldNames;

/// The fields that a struct requested.
#[derive(Debug)]
struct Asked(&'static [&'static str]);

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Asked {}

impl de::Error for Asked {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Asked(&[])
    }
}

impl<'de> Deserializer<'de> for FieldNames {
    type Error = Asked;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["policy.salt", "policy.mode", "fetch.timeout"];
        assert_eq!(nearest("policy.slat", known), Some("policy.salt"));
        assert_eq!(nearest("salt", known), Some("policy.salt"));
        assert_eq!(nearest("worker.timeout", known), Some("fetch.timeout"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_long_name_is_compared_with_nothing() {
        // So alike that a comparison would find it.
        let known = format!("{}a", "x".repeat(LONGEST - 1));
        assert_eq!(nearest(&"x".repeat(LONGEST), [known.as_str()]), Some(known.as_str()));
        assert_eq!(nearest(&"x".repeat(LONGEST + 1), [known.as_str()]), None);
    }

    #[test]
    fn field_names_are_the_ones_that_are_read() {
        #[derive(serde::Deserialize)]
        struct Sample {
            #[serde(rename = "box")]
            _first: Option<u8>,
            _second: u8,
        }
        assert_eq!(field_names::<Sample>(), ["box", "_second"]);
        assert!(field_names::<u8>().is_empty());
    }
}
