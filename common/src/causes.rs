//! An error with all its causes, on one line: what an operator needs to act on it.

use std::error::Error;

/// Returns the error's message and those of its sources, down to the root cause. A source that the message before already
/// ends with is left out: many libraries repeat it.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !last.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        last = next;
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn every_cause_is_named_once_down_to_the_root() {
        let root = Layer("WRONGPASS invalid password", None);
        let repeated = Layer("redis: WRONGPASS invalid password", Some(Box::new(root)));
        let error = Layer("the schedule could not be used", Some(Box::new(repeated)));
        assert_eq!(causes(&error), "the schedule could not be used: redis: WRONGPASS invalid password");
    }
}
