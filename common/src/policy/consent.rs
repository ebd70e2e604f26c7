//! Publishers that consent to polls more often than our own floor (`floor_by_consent`): the fleet's operator, or a host rule,
//! lets a publisher's word count where it is shorter than `min_interval`.
//!
//! `ttl`, `sy:updatePeriod` and freshness say how long a document stays as it is, so a poll after that time is expected. The
//! longest of them counts. A publisher that states none of them does not consent. Retries after a failure keep to our own floor.

use std::time::Duration;

use super::Subject;
use crate::config::PolicyConfig;

/// Returns the shortest interval that our own floor leaves for a feed outside of category A. `fresh_for` is what is left of
/// the last response's freshness; zero does not count as consent.
pub(super) fn shortest(subject: &Subject<'_>, fresh_for: Option<Duration>, config: &PolicyConfig) -> Duration {
    let hints = &subject.state.hints;
    let fresh_for = fresh_for.filter(|fresh_for| !fresh_for.is_zero());
    let said = [hints.ttl, hints.update_period, fresh_for].into_iter().flatten().max();
    match said {
        Some(said) if subject.floor_by_consent.unwrap_or(config.floor_by_consent) => {
            said.max(config.category.a.interval).min(config.min_interval)
        }
        _ => config.min_interval,
    }
}
