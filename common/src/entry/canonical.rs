//! An entry's address without what was added on the way to it: tracking, AMP, addresses that only lead on.
//!
//! What is removed is listed with its sources in `tracking.txt`. Nothing is fetched: an address that hides its target
//! (a shortener's) stays. The result identifies equal pages no better than the page's own `canonical` link would.

use std::collections::HashSet;
use std::sync::LazyLock;

use url::Url;

const LISTED: &str = include_str!("tracking.txt");
/// Addresses that lead to addresses that lead on.
const MAX_STEPS: usize = 4;
/// The most parameters of an address that is looked at. No publisher writes as many.
const MAX_PARAMETERS: usize = 256;

static LIST: LazyLock<List> = LazyLock::new(List::read);

/// What `tracking.txt` lists.
#[derive(Default)]
struct List {
    /// Names of parameters.
    names: HashSet<&'static str>,
    /// Parameters with a value.
    pairs: HashSet<&'static str>,
    /// Beginnings of names.
    beginnings: Vec<&'static str>,
    /// Hosts and paths that only redirect, and the parameter with the target.
    redirects: Vec<[&'static str; 3]>,
}

impl List {
    fn read() -> Self {
        let mut list = List::default();
        for line in LISTED.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["redirect", host, path, parameter] => list.redirects.push([host, path, parameter]),
                [pair] if pair.contains('=') => _ = list.pairs.insert(pair),
                [name] => match name.strip_suffix('*') {
                    Some(beginning) => list.beginnings.push(beginning),
                    None => _ = list.names.insert(name),
                },
                _ => {}
            }
        }
        list
    }

    fn has(&self, parameter: &str) -> bool {
        let parameter = parameter.to_ascii_lowercase();
        let name = parameter.split('=').next().unwrap_or_default();
        self.names.contains(name)
            || self.pairs.contains(&*parameter)
            || self.beginnings.iter().any(|beginning| name.starts_with(beginning))
    }
}

/// Returns the address without tracking, AMP and redirects that name their target; `None` when it is that already.
pub fn canonical_url(address: &str) -> Option<String> {
    // most have nothing that could be removed
    let has_none = !address.contains('?') && !address.contains("amp");
    if has_none || address.matches('&').count() >= MAX_PARAMETERS {
        return None;
    }
    let mut url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let mut changed = false;
    for _ in 0..MAX_STEPS {
        let Some(target) = target(&url).or_else(|| behind_cache(&url)) else { break };
        (url, changed) = (target, true);
    }
    changed |= drop_tracking(&mut url) | drop_amp(&mut url);
    changed.then(|| url.into())
}

/// Returns the target of an address of a service that only redirects.
fn target(url: &Url) -> Option<Url> {
    let host = url.host_str()?;
    let mut parameters = LIST
        .redirects
        .iter()
        .filter_map(|[of_host, path, parameter]| (*of_host == host && url.path() == *path).then_some(*parameter));
    parameters.find_map(|parameter| {
        let (_, target) = url.query_pairs().find(|(name, _)| name == parameter)?;
        Url::parse(&target).ok().filter(|target| matches!(target.scheme(), "http" | "https"))
    })
}

/// Returns the page behind an AMP cache: `www.google.com/amp/s/HOST/PATH`, `HOST.cdn.ampproject.org/c/s/HOST/PATH`.
fn behind_cache(url: &Url) -> Option<Url> {
    let host = url.host_str()?;
    let path = if host == "www.google.com" {
        url.path().strip_prefix("/amp/")?
    } else if host.ends_with(".cdn.ampproject.org") || host == "cdn.ampproject.org" {
        ["/c/", "/v/", "/wp/"].into_iter().find_map(|kind| url.path().strip_prefix(kind))?
    } else {
        return None;
    };
    let (scheme, rest) = path.strip_prefix("s/").map_or(("http", path), |rest| ("https", rest));
    let query = url.query().map_or(String::new(), |query| format!("?{query}"));
    Url::parse(&format!("{scheme}://{rest}{query}"))
        .ok()
        .filter(|page| page.host_str().is_some_and(|host| host.contains('.')))
}

fn drop_tracking(url: &mut Url) -> bool {
    let Some(query) = url.query() else { return false };
    let kept: Vec<&str> = query.split('&').filter(|pair| !LIST.has(pair)).collect();
    if kept.len() == query.split('&').count() {
        return false;
    }
    let kept = kept.join("&");
    url.set_query(Some(kept.as_str()).filter(|kept| !kept.is_empty()));
    true
}

/// The page of which `/amp` or `/amp/` at the end is the AMP form.
fn drop_amp(url: &mut Url) -> bool {
    let path = url.path();
    let page = path
        .strip_suffix("/amp/")
        .map(|page| format!("{page}/"))
        .or_else(|| path.strip_suffix("/amp").map(str::to_owned));
    let Some(page) = page.filter(|page| page.len() > 1) else { return false };
    url.set_path(&page);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_to_an_address_is_removed_and_all_else_stays() {
        let table = [
            ("https://a.example/p?utm_source=rss&utm_medium=feed", Some("https://a.example/p")),
            ("https://a.example/p?id=1&UTM_campaign=x&b=%20#part", Some("https://a.example/p?id=1&b=%20#part")),
            ("https://a.example/?fbclid=x", Some("https://a.example/")),
            ("https://a.example/2026/post/amp/", Some("https://a.example/2026/post/")),
            ("https://a.example/post?amp=1", Some("https://a.example/post")),
            ("https://a.example/post?outputType=amp&x=y", Some("https://a.example/post?x=y")),
            ("https://www.google.com/amp/s/a.example/post?x=1", Some("https://a.example/post?x=1")),
            ("https://a-example.cdn.ampproject.org/c/s/a.example/post/amp", Some("https://a.example/post")),
            ("https://www.google.com/url?q=https://a.example/%3Futm_id%3D1%26x%3D2", Some("https://a.example/?x=2")),
            ("https://l.facebook.com/l.php?u=https%3A%2F%2Fa.example%2F&h=AT", Some("https://a.example/")),
            ("https://a.example/p?id=1", None),
            ("https://a.example/p", None),
            ("https://a.example/amp/", None),
            ("https://a.example/amplifiers?utmost=1&fb=2&campaign=x", None),
            ("https://www.google.com/search?q=https://a.example/", None),
            ("https://www.google.com/url?q=javascript:alert(1)", None),
            ("mailto:a@a.example?utm_source=x", None),
            ("no address?utm_source=x", None),
        ];
        for (address, canonical) in table {
            assert_eq!(canonical_url(address).as_deref(), canonical, "{address}");
            assert_eq!(canonical.and_then(canonical_url), None, "{address} twice");
        }
    }

    #[test]
    fn an_address_with_more_parameters_than_anyone_writes_is_not_searched() {
        let with = |parameters: usize| format!("https://a.example/?utm_id=1{}", "&a=b".repeat(parameters - 1));
        assert_eq!(canonical_url(&with(MAX_PARAMETERS)).unwrap().matches("a=b").count(), MAX_PARAMETERS - 1);
        assert_eq!(canonical_url(&with(MAX_PARAMETERS + 1)), None);
        assert_eq!(
            (LIST.redirects.len(), LIST.beginnings.len()),
            (LISTED.matches("\nredirect ").count(), LISTED.matches("*\n").count())
        );
    }
}
