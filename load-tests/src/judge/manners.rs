//! The shape of a single request.

use super::{Fault, Rules, Violation};
use crate::origin::log::Record;

pub(super) fn judge_request(record: &Record, rules: &Rules, violations: &mut Vec<Violation>) {
    let mut blame = |fault, why: String| violations.push(Violation::new(fault, record, why));
    // An unconditional HEAD has no use.
    let may_be_head = rules.heads.contains(&*record.path) && record.is_conditional();
    if record.method() != "GET" && !(may_be_head && record.method() == "HEAD") {
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
        judge_request(&Record::made(0, path, 0, lines, 200, &[]), &Rules::default(), &mut violations);
        violations.iter().map(|violation| violation.fault).collect()
    }

    #[test]
    fn head_is_for_paths_that_allow_it_and_comes_with_conditions() {
        let faults = |method: &str, lines: &[&str]| {
            let mut violations = Vec::new();
            let rules = Rules { heads: ["/h".to_owned()].into(), ..Rules::default() };
            for path in ["/h", "/f"] {
                let record = Record::made(0, path, 0, lines, 200, &[]).asked_with(method);
                judge_request(&record, &rules, &mut violations);
            }
            violations.iter().map(|violation| violation.fault).collect::<Vec<_>>()
        };
        let (bare, conditional) = (["User-Agent: x"], ["User-Agent: x", "If-None-Match: \"a\""]);
        assert_eq!(faults("HEAD", &conditional), [Fault::Method], "at the other path");
        assert_eq!(faults("HEAD", &bare), [Fault::Method; 2]);
        assert_eq!((faults("POST", &conditional), faults("GET", &bare)), (vec![Fault::Method; 2], vec![]));
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
