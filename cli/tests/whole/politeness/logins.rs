//! Logins: sent only to the feed's own origin, never across a redirect or a move to another one, and stored nowhere in
//! plain text.

use std::path::Path;

use futures_util::future::join_all;
use load_tests::proxy::{FaultProxy, occurrences};
use load_tests::{Feed, Record, Script};
use serde_json::{Value, json};

use super::case::{Case, sent};
use super::{MOVE_AFTER, Row};

const USER: &str = "ann-the-reader";
const PASSWORD: &str = "Tr0ub4dor-and-3";
/// `ann-the-reader:Tr0ub4dor-and-3`
const BASIC: &str = "YW5uLXRoZS1yZWFkZXI6VHIwdWI0ZG9yLWFuZC0z";
/// Part of the paths of feeds with a login. Finding it proves that the search covers the place.
const SEEN: &str = "/login/";

/// The target of a feed that moves within its origin: first as a hop that waits for its host's gap, then polled
/// directly.
pub(crate) const MOVED: &str = "/login/moved";

/// The strings that are searched for.
const WORDS: [&str; 4] = [USER, PASSWORD, BASIC, SEEN];

fn login() -> Value {
    json!({"username": USER, "password": PASSWORD})
}

fn authorized(requests: &[Record]) -> Vec<Option<String>> {
    sent(requests, "authorization")
}

pub(crate) async fn stays(case: &Case<'_>) {
    join_all([302, 307, 301, 308].map(|status| stays_over(case, status))).await;
    moves(case).await;
}

async fn stays_over(case: &Case<'_>, status: u16) {
    let basic = Some(format!("Basic {BASIC}"));
    let (home, there) = (case.host(), case.host());
    let url = |host, path: &str| case.stage.origin.url_on(host, path);
    let (start, step, elsewhere) = (case.path(), case.path(), case.path());
    case.stage.origin.set(&elsewhere, Script::feed(Feed::rss()));
    case.stage.origin.set(&step, Script::redirect(status, url(there, &elsewhere)));
    case.stage.origin.set(&start, Script::redirect(status, step.clone()));
    let feed = case.subscribe(home, &start, login()).await;
    // A move would happen after the fourth, and end these requests.
    let polls = case.requests(&start, 6).await;
    let what = |of: &str| format!("Authorization over {status}, {of}");
    case.expect(&what("at the feed's own URL"), vec![basic.clone(); 6], authorized(&polls));
    case.expect(&what("within its origin"), vec![basic.clone(); 3], authorized(&case.requests(&step, 3).await));
    case.expect(&what("elsewhere"), vec![None; 3], authorized(&case.requests(&elsewhere, 3).await));
    let over = polls.last().map_or(MOVE_AFTER, |last| last.start - polls[0].start);
    case.require("it was seen for long enough", over + case.stage.noise() >= MOVE_AFTER, &over);
    let view = case.view(&feed).await;
    let expected = json!([url(home, &start), true]);
    case.expect(&format!("its URL after six {status}"), expected, json!([view["url"], view["credentials"]]));
}

/// Checks that a feed moves within its origin, and its login with it.
async fn moves(case: &Case<'_>) {
    let basic = Some(format!("Basic {BASIC}"));
    let host = case.host();
    let url = |host, path: &str| case.stage.origin.url_on(host, path);
    let (old, new) = (case.path(), MOVED.to_owned());
    case.stage.origin.set(&new, Script::feed(Feed::rss()));
    case.stage.origin.set(&old, Script::redirect(301, new.clone()));
    let feed = case.subscribe(host, &old, login()).await;
    let moved = case.wait_for_field(&feed, "url", &json!(url(host, &new))).await;
    case.expect("a permanent redirect within the origin", json!(url(host, &new)), moved);
    let before = case.stage.origin.requests(&new).len();
    let after = case.requests(&new, before + 2).await;
    case.expect("Authorization after the move", vec![basic; before + 2], authorized(&after));
}

/// A place that might contain logins: its name, the number of occurrences of each of [`WORDS`], and whether feeds'
/// paths occur there.
pub(crate) struct Place {
    name: String,
    found: [usize; WORDS.len()],
    holds_paths: bool,
}

impl Place {
    /// Returns the roles' output. Their log does not contain paths.
    pub(crate) fn text(name: &str, text: &str) -> Self {
        Self::bytes(name, text.as_bytes(), false)
    }

    fn bytes(name: &str, bytes: &[u8], holds_paths: bool) -> Self {
        let found = WORDS.map(|word| occurrences(bytes, word.as_bytes()));
        Place { name: name.to_owned(), found, holds_paths }
    }

    /// Returns all files of a fleet's folder.
    pub(crate) fn folder(path: &Path) -> Self {
        let files = std::fs::read_dir(path).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        Self::bytes("the store's files", &files.collect::<Vec<_>>().concat(), true)
    }

    /// Returns all traffic through a proxy.
    pub(crate) fn wire(name: &str, proxy: &FaultProxy) -> Self {
        Place { name: name.to_owned(), found: WORDS.map(|word| proxy.heard(word)), holds_paths: true }
    }

    /// Returns the feeds in PostgreSQL, packed columns in hexadecimal.
    pub(crate) async fn rows(server: &str, schema: &str) -> Self {
        let database = sqlx::PgPool::connect(server).await.unwrap();
        let query = sqlx::AssertSqlSafe(format!(r#"SELECT feeds::text FROM "{schema}".feeds"#));
        let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(&database).await.unwrap();
        let text = rows.concat();
        let hex = |word: &str| word.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let found =
            WORDS.map(|word| [word.to_owned(), hex(word)].map(|form| occurrences(text.as_bytes(), form.as_bytes())));
        Place { name: "the store's rows".to_owned(), found: found.map(|forms| forms.iter().sum()), holds_paths: true }
    }
}

/// Returns the row of the score card that says whether logins leaked.
pub(crate) fn kept(places: &[Place]) -> Row {
    let mut breaches = Vec::new();
    for Place { name, found, holds_paths } in places {
        let [secrets @ .., paths] = found;
        if secrets.iter().any(|count| *count > 0) {
            breaches.push(format!("{name}: expected no login, came {found:?} of {WORDS:?}"));
        }
        if *holds_paths && *paths == 0 {
            breaches.push(format!("{name}: expected the paths of feeds, so that looking proves something, came none"));
        }
    }
    Row { number: "kept", promise: "a login is in no log, no queue and no store in plain text", requests: 0, breaches }
}
