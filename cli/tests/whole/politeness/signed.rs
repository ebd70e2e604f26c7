//! Request signatures (P46), verified with OpenSSL, not with our own code.

use load_tests::Record;
use load_tests::{Feed, Script};
use serde_json::Value;

use super::case::Case;

/// The run's `api.public_url`, under which servers look up the key directory.
pub(crate) const AGENT: &str = "https://fleet.example";
const AUTHORITY: &str = "fleet.example";

pub(crate) async fn p46(case: &Case<'_>) {
    let (target, there) = (case.path(), case.host());
    case.stage.origin.set(&target, Script::feed(Feed::rss()));
    let feed = case.feed(Script::redirect(302, case.stage.origin.url_on(there, &target))).await;
    let directory = case.stage.read("/.well-known/http-message-signatures-directory").await;
    let (fields, keys) = (directory.headers().clone(), directory.text().await.unwrap());
    let key = serde_json::from_str::<Value>(&keys).unwrap()["keys"][0].clone();
    case.expect("the key in the directory", case.stage.keys.jwk_x().unwrap(), key["x"].as_str().unwrap().to_owned());
    let named = format!(";keyid={};", key["kid"]);

    for (path, host) in [(&feed.path, feed.host), (&target, there)] {
        for request in case.requests(path, 2).await {
            let authority = case.stage.origin.address(host).to_string();
            let input = request.header("signature-input").unwrap_or_default();
            case.expect("Signature-Agent", Some(format!("\"{AGENT}\"")), request.header("signature-agent"));
            case.require("the key of the directory is named", input.contains(&named), &input);
            case.require("it verifies", verifies(case, &request, &authority), &input);
            case.require("for this host alone", !verifies(case, &request, "other.example"), &input);
        }
    }

    let field = |name: &str| fields.get(name).map_or("", |value| value.to_str().unwrap());
    case.expect("the directory's type", "application/http-message-signatures-directory+json", field("content-type"));
    let (input, signature) = (field("signature-input"), field("signature"));
    let is_signed = |authority| {
        let components = [("\"@authority\";req", authority)];
        case.stage.keys.verifies(&components, input, signature).unwrap()
    };
    case.require("the directory is signed with its key", is_signed(AUTHORITY), &input);
    case.require("as that of no other address", !is_signed("other.example"), &input);
    let tag = ";tag=\"http-message-signatures-directory\"";
    case.require("and says what for", input.ends_with(tag) && input.contains(&named), &input);
}

fn verifies(case: &Case<'_>, request: &Record, authority: &str) -> bool {
    let field = |name: &str| request.header(name).unwrap_or_default();
    let components = [("\"@authority\"", authority), ("\"signature-agent\"", &field("signature-agent"))];
    case.stage.keys.verifies(&components, &field("signature-input"), &field("signature")).unwrap()
}
