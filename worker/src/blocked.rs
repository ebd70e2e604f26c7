//! Sites that answer with a check for people, or with a refusal of robots, in place of the feed: identifies the
//! service, by the marks that each leaves in its answers.
//!
//! Such a page says nothing of the feed: it is never read as one, nor as the page of one. Nothing here tries to pass a check.

use common::outcome::Blocker;
use http::header::{self, HeaderMap, HeaderName};
use http::response::Parts;
use url::Url;

/// Bytes of a page that are looked at; these pages are small.
pub(crate) const OPENING: usize = 64 * 1024;

const CF_MITIGATED: HeaderName = HeaderName::from_static("cf-mitigated");
const WAF_ACTION: HeaderName = HeaderName::from_static("x-amzn-waf-action");
const VERCEL_MITIGATED: HeaderName = HeaderName::from_static("x-vercel-mitigated");
const DATADOME: HeaderName = HeaderName::from_static("x-dd-b");

/// Returns the service that says in the head of an answer that the answer is not the site's.
pub(crate) fn by_head(head: &Parts) -> Option<Blocker> {
    let has = |name: HeaderName| head.headers.contains_key(name);
    match () {
        // https://developers.cloudflare.com/cloudflare-challenges/challenge-types/challenge-pages/detect-response/
        () if has(CF_MITIGATED) => Some(Blocker::Cloudflare),
        // https://docs.aws.amazon.com/waf/latest/developerguide/waf-captcha-and-challenge-how-it-works.html
        () if has(WAF_ACTION) => Some(Blocker::AwsWaf),
        () if has(VERCEL_MITIGATED) => Some(Blocker::Vercel),
        () if has(DATADOME) && !head.status.is_success() => Some(Blocker::DataDome),
        () => None,
    }
}

/// Returns whether an answer with this status may be such a page, so that its body is worth a look. An author who only
/// publishes pages on a host cannot give them such a status, so these pages speak for the host.
pub(crate) fn may_block(head: &Parts) -> bool {
    let is = |headers: &HeaderMap, name, expected: &[u8]| {
        let value = headers.get(name).map_or(&b""[..], |value| value.as_bytes());
        value.get(..expected.len()).is_some_and(|start| start.eq_ignore_ascii_case(expected))
    };
    let declares = |media_type: &[u8]| is(&head.headers, header::CONTENT_TYPE, media_type);
    let is_page =
        declares(b"text/html") || (declares(b"text/plain") && is(&head.headers, header::SERVER, b"cloudflare"));
    matches!(head.status.as_u16(), 202 | 401 | 403 | 405 | 406 | 418 | 429 | 503) && is_page
}

/// What each of them writes in its pages, and no feed or ordinary page does.
const MARKS: [(Blocker, &str); 18] = [
    (Blocker::Cloudflare, "window._cf_chl_opt"),
    (Blocker::Cloudflare, "<title>Just a moment...</title>"),
    (Blocker::Cloudflare, "<title>Attention Required! | Cloudflare</title>"),
    // 1005 to 1010 (a banned address, client or country), 1015 (a rate limit), 1020 (a rule of the site):
    // https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/
    (Blocker::Cloudflare, " used Cloudflare to restrict access</title>"),
    (Blocker::Akamai, "errors.edgesuite.net"),
    (Blocker::Akamai, "Reference&#32;&#35;"),
    (Blocker::DataDome, "captcha-delivery.com/"),
    (Blocker::DataDome, "<p id=\"cmsg\">Please enable JS and disable any ad blocker</p>"),
    (Blocker::Imperva, "_Incapsula_Resource"),
    (Blocker::Imperva, "Incapsula incident ID"),
    (Blocker::PerimeterX, "px-captcha"),
    (Blocker::Sucuri, "Sucuri WebSite Firewall - Access Denied"),
    (Blocker::AwsWaf, "AwsWafIntegration"),
    (Blocker::Vercel, "<title>Vercel Security Checkpoint</title>"),
    (Blocker::Anubis, "/.within.website/x/cmd/anubis/"),
    (Blocker::Anubis, "id=\"anubis_challenge\""),
    (Blocker::Reddit, "been blocked by network security"),
    (Blocker::Reddit, "whoa there, pardner!"),
];

/// Returns the service that wrote this page, if it is such a page. With a good status any author may have written it.
pub(crate) fn by_page(body: &[u8]) -> Option<Blocker> {
    let text = String::from_utf8_lossy(&body[..body.len().min(OPENING)]);
    if is_cloudflare_code(&text) {
        return Some(Blocker::Cloudflare);
    }
    MARKS.iter().find(|(_, mark)| text.contains(mark)).map(|(blocker, _)| *blocker)
}

/// `error code: 1020`: Cloudflare's whole answer to clients that are not browsers.
fn is_cloudflare_code(text: &str) -> bool {
    let code = text.trim().strip_prefix("error code: 1");
    code.is_some_and(|rest| rest.len() == 3 && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the service that sends us to a form for people by this redirect.
pub(crate) fn by_redirect(to: &Url) -> Option<Blocker> {
    let is_form =
        |path: &str| ["/privacy/consent", "/login_required", "/safe-mode"].iter().any(|form| path.starts_with(form));
    let is_tumblr = to.domain().is_some_and(|name| name == "tumblr.com" || name.ends_with(".tumblr.com"));
    (is_tumblr && is_form(to.path())).then_some(Blocker::Tumblr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, fields: &[(&str, &str)]) -> Parts {
        let mut answer = http::Response::builder().status(status);
        for (name, value) in fields {
            answer = answer.header(*name, *value);
        }
        answer.body(()).unwrap().into_parts().0
    }

    #[test]
    fn an_answer_says_in_its_head_who_gave_it() {
        for status in [200, 403, 503] {
            assert_eq!(by_head(&head(status, &[("cf-mitigated", "challenge")])), Some(Blocker::Cloudflare));
            assert_eq!(by_head(&head(status, &[("server", "cloudflare"), ("cf-ray", "x")])), None, "its ordinary work");
        }
        assert_eq!(by_head(&head(405, &[("x-amzn-waf-action", "captcha")])), Some(Blocker::AwsWaf));
        assert_eq!(by_head(&head(429, &[("x-vercel-mitigated", "challenge")])), Some(Blocker::Vercel));
        assert_eq!(by_head(&head(403, &[("x-dd-b", "1")])), Some(Blocker::DataDome));
        assert_eq!(by_head(&head(200, &[("x-dd-b", "1")])), None);
    }

    #[test]
    fn only_pages_with_a_refusing_status_are_worth_a_look() {
        let page = ("content-type", "Text/HTML; charset=utf-8");
        assert!(may_block(&head(403, &[page])) && may_block(&head(503, &[page])));
        assert!(!may_block(&head(404, &[page])) && !may_block(&head(403, &[("content-type", "application/json")])));
        assert!(!may_block(&head(403, &[])));
        let plain = ("content-type", "text/plain; charset=UTF-8");
        assert!(may_block(&head(403, &[plain, ("server", "cloudflare")])) && !may_block(&head(403, &[plain])));
    }

    #[test]
    fn each_one_is_known_by_its_page_and_ordinary_pages_are_not() {
        for (blocker, mark) in MARKS {
            let page = format!("<!DOCTYPE html><html><head>{mark}</head><body>x</body></html>");
            assert_eq!(by_page(page.as_bytes()), Some(blocker), "{mark}");
        }
        assert_eq!(by_page(b"error code: 1020\n"), Some(Blocker::Cloudflare));
        let real =
            b"<head><title>Access denied | a.example used Cloudflare to restrict access</title></head>Error code: 1015";
        assert_eq!(by_page(real), Some(Blocker::Cloudflare));
        for other in ["error code: 521", "error code: 10200", "error code: 1020 of ours", "Error code 1020"] {
            assert_eq!(by_page(other.as_bytes()), None, "{other}");
        }
        let ordinary =
            "<html><script src=/cdn-cgi/challenge-platform/scripts/jsd/main.js></script>Just a moment, Cloudflare";
        assert_eq!(by_page(ordinary.as_bytes()), None);
        let far = format!("{}{}", "x".repeat(OPENING), MARKS[0].1);
        assert_eq!(by_page(far.as_bytes()), None);
    }

    #[test]
    fn a_redirect_to_a_form_is_none_to_a_feed() {
        let to = |url: &str| by_redirect(&url.parse().unwrap());
        assert_eq!(to("https://www.tumblr.com/privacy/consent?redirect=x"), Some(Blocker::Tumblr));
        assert_eq!(to("https://www.tumblr.com/login_required/ann"), Some(Blocker::Tumblr));
        for other in
            ["https://ann.tumblr.com/rss", "https://nottumblr.com/privacy/consent", "https://a.example/login_required"]
        {
            assert_eq!(to(other), None, "{other}");
        }
    }
}
