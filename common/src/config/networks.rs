//! Networks as they are configured: an address alone is the network of this one address.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};

/// Reads networks such as `10.0.0.0/8`, and addresses.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let network = |text: &String| match text.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address)),
        Err(_) => text.parse().map_err(de::Error::custom),
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(network).collect()
}
