//! The shape of a single request.

use super::{Fault, Violation};
use crate::origin::log::Record;

pub(super) fn judge_request(record: &Record, violations: &mut Vec<Violation>) {
    let mut blame = |fault, why: String| violations.push(Violation::new(fault, record, why));
    if record.method() != "GET" {
        blame(Fault::Method, format!("method {}", record.method()));
    }
    if record.target() != &*record.path {
        blame(Fault::ChangedTarget, format!("asked for {}", record.target()));
    }
    if let Some(cookie) = record.header("cookie") {
        blame(Fault::Cookie, format!("cookie {cookie}"));
    }
    if let Some(referer) = record.header("referer") {
        blame(Fault::Referer, format!("referer {referer}"));
    }
    for name in ["cache-control", "pragma"] {
        if let Some(value) = record.header(name) {
            blame(Fault::CacheBuster, format!("{name}: {value}"));
        }
    }
    match record.header("user-agent") {
        None => blame(Fault::UserAgent, "no user agent".to_owned()),
        Some(agent) if agent.is_empty() || agent.starts_with("Mozilla/") => {
            blame(Fault::UserAgent, format!("user agent \"{agent}\""));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, lines: &[&str]) -> Vec<Fault> {
        let mut violations = Vec::new();
        judge_request(&Record::made(0, path, 0, lines, 200, &[]), &mut violations);
        violations.iter().map(|violation| violation.fault).collect()
    }

    #[test]
    fn a_plain_request_with_a_name_is_polite() {
        assert_eq!(faults("/f", &["User-Agent: feedfleet/1.0 (+https://example.org)", "Accept: */*"]), []);
    }

    #[test]
    fn cookies_referers_cache_busters_and_masks_are_blamed() {
        assert_eq!(faults("/f", &[]), [Fault::UserAgent]);
        assert_eq!(faults("/f", &["user-agent: Mozilla/5.0 (X11)"]), [Fault::UserAgent]);
        let rude = ["User-Agent: x", "Cookie: a=b", "Referer: /", "Cache-Control: no-cache", "Pragma: no-cache"];
        assert_eq!(faults("/f", &rude), [Fault::Cookie, Fault::Referer, Fault::CacheBuster, Fault::CacheBuster]);
    }
}
