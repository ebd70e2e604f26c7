//! What is logged, and what never is.

use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;

use crate::program::run;

const SECRET: &str = "Hunter2InAQuery";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_has_the_query_of_a_url() {
    let origin = Origin::start().await.unwrap();
    origin.set("/good", Script::feed(Feed::rss().initial(2)));
    let urls: Vec<String> =
        ["/good", "/missing"].iter().map(|path| origin.url(&format!("{path}?auth={SECRET}"))).collect();
    let refused = format!("http://127.0.0.1:9/feed?auth={SECRET}");
    let settings = [
        "fetch.allow_networks=127.0.0.0/8",
        "fetch.allow_ports=1-65535",
        "log.level=info,scheduler=debug,worker=debug,web=debug,store=debug,common=debug",
    ];
    let mut arguments = vec!["run", "--data", ":memory:", "--listen", "127.0.0.1:0", "--once"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    arguments.extend(urls.iter().map(String::as_str).chain([refused.as_str()]));
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("a new feed cannot be read"), "the failures are logged: {}", ran.err);
    assert!(!ran.err.contains(SECRET), "{}", ran.err);
}
