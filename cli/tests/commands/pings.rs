//! Pings as publishers' software sends them.

use std::process::Command;
use std::time::Instant;

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;

use crate::fleet::{Fleet, PATIENCE};

/// Runs a client that publishers use, and returns its output.
fn client(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program} is needed, dev/install brings it: {error}"));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_every_kind_have_a_feed_polled_and_are_thanked() {
    let fleet = Fleet::start(&["--set", "policy.ping_spread=50ms", "--set", "policy.ping_quiet=20ms"]).await;
    fleet.origin.set("/harbour", Script::feed(Feed::rss().initial(2)));
    let url = fleet.origin.url("/harbour");
    fleet.done(&["feed", "add", &url]);
    let mut asked = 1;
    let mut polled_again = |by: &str| {
        let deadline = Instant::now() + PATIENCE;
        while fleet.origin.requests("/harbour").len() <= asked {
            assert!(Instant::now() < deadline, "no poll by {by}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        asked = fleet.origin.requests("/harbour").len();
    };

    assert_eq!(fleet.done(&["ping", &url]), format!("heard {url}\n"));
    polled_again("the command");

    let python = |calls: &str| {
        let program = format!("import sys, xmlrpc.client\nserver = xmlrpc.client.ServerProxy(sys.argv[1])\n{calls}");
        client("python3", &["-c", &program, &format!("{}/RPC2", fleet.server), &url])
    };
    let thanks = "{'flerror': False, 'message': 'Thanks for the ping.'}\n";
    assert_eq!(python("print(server.weblogUpdates.ping('Harbour & caf\u{e9}', sys.argv[2]))"), thanks);
    polled_again("weblogUpdates.ping");
    let extended =
        "print(server.weblogUpdates.extendedPing('H', 'http://a.example/', 'http://a.example/1', sys.argv[2]))";
    assert_eq!(python(extended), thanks);
    polled_again("weblogUpdates.extendedPing");
    assert_eq!(
        python("print(server.rssCloud.ping(sys.argv[2]), server.rssCloud.ping('http://b.example/'))"),
        "True False\n"
    );
    polled_again("rssCloud.ping");
    let fault = "try: server.system.exec('x')\nexcept xmlrpc.client.Fault as fault: print(fault.faultCode)";
    assert_eq!(python(fault), "-32601\n");

    let debian = |method: &str, texts: &[&str]| {
        let target = format!("{}/RPC2", fleet.server);
        let texts = texts.iter().map(|text| format!("s/{text}"));
        let arguments: Vec<String> = [target, method.to_owned()].into_iter().chain(texts).collect();
        client("xmlrpc", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (method, texts) in [
        ("weblogUpdates.ping", vec!["Harbour & caf\u{e9}", &url]),
        ("weblogUpdates.extendedPing", vec!["Harbour", "http://a.example/", "http://a.example/1", &url]),
    ] {
        let answer = debian(method, &texts);
        assert!(answer.contains("'Thanks for the ping.'"), "{answer}");
        polled_again(method);
    }
    assert!(debian("rssCloud.ping", &[&url]).contains("Boolean: TRUE"));
    polled_again("rssCloud.ping");

    let form = |fields: &[&str]| {
        let target = format!("{}/ping", fleet.server);
        let mut arguments = vec!["-sS", target.as_str()];
        arguments.extend(fields.iter().flat_map(|field| ["--data-urlencode", field]));
        client("curl", &arguments)
    };
    let answer = form(&["name=Harbour news", "url=http://a.example/", &format!("rssUrl={url}")]);
    assert!(answer.contains("<result success=\"true\" msg=\"Thanks for the ping.\"/>"), "{answer}");
    polled_again("a form");
    assert!(form(&["url=http://b.example/"]).contains("success=\"false\""));

    let unknown = fleet.run(&["ping", "http://b.example/"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(1), "unknown http://b.example/\n"));
    assert_eq!(fleet.done(&["feed", "list", "--json"]).lines().count(), 1, "no ping adds a feed");
}
