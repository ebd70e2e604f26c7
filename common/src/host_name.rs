//! Host names as people write them.

use std::str::FromStr;

use crate::host::HostKey;
use crate::url::FeedUrl;

/// The host that a person means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// A name, with any port.
    Name(String),
    /// One host: name and port, or a shared domain.
    Key(HostKey),
}

/// The text is not the name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "host must be a name such as example.com, a name and port such as example.com:443, or *.example.com for a shared one"
)]
pub struct NoHost;

impl FromStr for HostName {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let text = text.trim().trim_end_matches('.');
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !text.ends_with(']') => (name, Some(port.parse::<u16>().map_err(|_| NoHost)?)),
            _ => (text, None),
        };
        let (shared, name) = name.strip_prefix("*.").map_or((false, name), |domain| (true, domain));
        let name = url::Host::parse(name).map_err(|_| NoHost)?.to_string();
        if name.len() > FeedUrl::MAX_HOST {
            return Err(NoHost);
        }
        match (shared, port) {
            (true, None) => Ok(HostName::Key(HostKey::new(&format!("*.{name}")))),
            (false, Some(port)) => Ok(HostName::Key(HostKey::new(&format!("{name}:{port}")))),
            (false, None) => Ok(HostName::Name(name)),
            (true, Some(_)) => Err(NoHost),
        }
    }
}

impl HostName {
    /// Returns the host name, to which rules apply.
    pub fn name(&self) -> &str {
        match self {
            HostName::Name(name) => name,
            HostName::Key(key) => key.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_with_or_without_port_or_as_a_shared_domain() {
        assert_eq!(format!("{}org", "a.".repeat(126)).parse::<HostName>(), Err(NoHost), "255 bytes");
        let key = |text: &str| Ok(HostName::Key(HostKey::new(text)));
        let name = |text: &str| Ok(HostName::Name(text.to_owned()));
        assert_eq!("Example.com.".parse(), name("example.com"));
        assert_eq!("b\u{fc}cher.example".parse(), name("xn--bcher-kva.example"));
        assert_eq!("example.com:8080".parse(), key("example.com:8080"));
        assert_eq!("*.Reddit.com".parse(), key("*.reddit.com"));
        assert_eq!("[::1]:80".parse(), key("[::1]:80"));
        assert_eq!("[::1]".parse(), name("[::1]"));
        for wrong in ["", "a b", "http://a.org", "a.org/feed", "a.org:port", "*.a.org:80", "a.org:99999", "me@a.org"] {
            assert_eq!(wrong.parse::<HostName>(), Err(NoHost), "{wrong}");
        }
    }
}
