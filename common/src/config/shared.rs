//! What all schedulers of a fleet must have in common, as one number.

use crate::config::{Config, DeliveryConfig};
use crate::document::ContentHash;

/// Returns a hash of the keys by which schedulers decide: policy, hosts, leases, retention, quotas, deliveries. Two schedulers that
/// share a fleet and show different hashes work against each other: each decides by its own. Contains no secret.
pub fn shared_hash(config: &Config) -> String {
    // Each machine has its own limit of file descriptors.
    let delivery = DeliveryConfig { concurrency: 0, ..config.delivery.clone() };
    let shared = (
        (&config.policy, &config.host, &config.host_rule, &config.scheduler),
        (&config.retention, &config.quota, &delivery),
    );
    // Only numbers and texts, which JSON can always represent.
    let text = serde_json::to_vec(&shared).unwrap_or_default();
    format!("{:032x}", ContentHash::of(&text, 0).0)[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::shared_hash;
    use crate::config::defaults;

    #[test]
    fn schedulers_that_decide_differently_show_different_hashes_and_others_the_same() {
        let hash = shared_hash(&defaults());
        let mut other = defaults();
        other.api.listen = "127.0.0.1:1".parse().unwrap();
        other.delivery.concurrency /= 2;
        assert_eq!(shared_hash(&other), hash, "each has its own address, and its machine's number of connections");
        other.policy.min_interval *= 2;
        assert_ne!(shared_hash(&other), hash);
        let mut other = defaults();
        other.delivery.exchange_texts.push("rust".into());
        assert_ne!(shared_hash(&other), hash, "each would publish other headers");
    }
}
