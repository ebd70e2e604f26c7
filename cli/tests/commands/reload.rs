//! Reading the configuration again, with the real program: by SIGHUP and by `config reload`.

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::Fleet;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn configuration(interval: &str, name: &str) -> String {
    format!(
        "[policy]\nmode = \"classes\"\nmin_interval = \"100ms\"\nsalt = 0.0\nhot_minutes = false\nno_validator_factor = 1.0\n\
         [policy.category.d]\ninterval = \"{interval}\"\ninterval_max = \"{interval}\"\n\
         [[host_rule]]\nmatch = \"127.0.0.1\"\nuser_agent = \"{name}\"\nreason = \"a test\"\n"
    )
}

/// A fleet with a configuration file, whose only feed is polled at the file's interval.
struct Reloading {
    fleet: Fleet,
    file: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Reloading {
    async fn start(interval: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("feedfleet.toml");
        std::fs::write(&file, configuration(interval, "first")).unwrap();
        let fleet = Fleet::start(&["--config", file.to_str().unwrap()]).await;
        fleet.origin.set("/feed", Script::feed(Feed::rss().initial(1)));
        fleet.done(&["feed", "add", &fleet.origin.url("/feed")]);
        Reloading { fleet, file, _folder: folder }
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap();
    }

    fn in_force(&self) -> Value {
        json(&self.fleet.done(&["config", "show", "--json"]))
    }

    /// Has the feed polled until the origin sees a request by this name.
    async fn polled_as(&self, name: &str) {
        let mut seen = 0;
        loop {
            let requests = self.fleet.origin.wait_for("/feed", seen + 1, crate::fleet::PATIENCE).await;
            assert!(requests.len() > seen, "nobody called {name} comes");
            if requests[seen..].iter().any(|request| request.header("user-agent").as_deref() == Some(name)) {
                return;
            }
            seen = requests.len();
            self.fleet.refresh("1").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_changes_the_interval_and_the_name_that_workers_use() {
    let it = Reloading::start("300ms").await;
    it.polled_as("first").await;
    it.write(&configuration("30days", "second"));
    it.fleet.hang_up();
    it.fleet.until(&["config", "show", "--json"], |out| json(out)["version"] == 2);
    assert_eq!(it.in_force()["accepted_by"], "signal");
    it.polled_as("second").await;
    it.fleet.until(&["feed", "explain", "1"], |out| out.contains("30 d"));
    let audit = reqwest::get(format!("{}/audit", it.fleet.server)).await.unwrap().text().await.unwrap();
    assert!(audit.contains("<code>SIGHUP</code>") && audit.contains("signal"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_mistake_changes_nothing_and_the_answer_names_the_key() {
    let it = Reloading::start("30days").await;
    let before = it.in_force();
    it.write("[policy]\nslat = 0.2\n");
    let ran = it.fleet.run(&["config", "reload"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("unknown key policy.slat") && ran.err.contains("did you mean policy.salt?"),
        "{}",
        ran.err
    );
    it.write("[policy]\nsalt = 7.0\n");
    it.fleet.hang_up();
    it.fleet.until(&["config", "show", "--json"], |out| {
        json(out)["last_reload"]["error"].as_str().is_some_and(|error| error.contains("policy.salt"))
    });
    let after = it.in_force();
    assert_eq!((&after["version"], &after["policy"]), (&before["version"], &before["policy"]));
    let metrics = reqwest::get(format!("{}/metrics", it.fleet.server)).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("feedfleet_config_last_reload_successful 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_change_without_a_restart_unless_none_are_left() {
    let it = Reloading::start("30days").await;
    let status = async |token: &str| {
        let request = reqwest::Client::new().get(format!("{}/api/v1/stats", it.fleet.server)).bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("anything").await, 200, "there are no tokens");
    let tokens = |token: &str| {
        let one = format!("[[api.tokens]]\nname = \"ann\"\ntoken = \"{token}\"\nrole = \"write\"\n");
        configuration("30days", "first") + &one
    };
    it.write(&tokens("0123456789abcdef"));
    let said = it.fleet.done(&["config", "reload"]);
    assert!(said.contains("the tokens of the API have changed") && !said.contains("restart"), "{said}");
    assert_eq!((status("anything").await, status("0123456789abcdef").await), (401, 200));
    it.write(&tokens("fedcba9876543210"));
    it.fleet.hang_up();
    let begun = std::time::Instant::now();
    while status("fedcba9876543210").await != 200 {
        assert!(begun.elapsed() < crate::fleet::PATIENCE, "the new token is refused");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(status("0123456789abcdef").await, 401);
    it.write(&configuration("30days", "first"));
    let reload = reqwest::Client::new().post(format!("{}/api/v1/config/reload", it.fleet.server));
    let reloaded = reload.bearer_auth("fedcba9876543210").send().await.unwrap().text().await.unwrap();
    assert_eq!(json(&reloaded)["needs_restart"], serde_json::json!(["api.tokens"]), "{reloaded}");
    assert_eq!((status("anything").await, status("fedcba9876543210").await), (401, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_need_a_restart_are_listed_and_the_rest_counts() {
    let it = Reloading::start("30days").await;
    it.write(&(configuration("20days", "first") + "[worker]\nconcurrency = 9\n"));
    let printed = it.fleet.done(&["config", "reload"]);
    assert!(printed.starts_with("policy and host rules are version 2 now ("), "{printed}");
    assert!(printed.ends_with("\nneeds a restart: worker.concurrency\n"), "{printed}");
    assert_eq!(it.in_force()["policy"]["category"]["d"]["interval"], "20days");
    let again = it.fleet.done(&["config", "reload"]);
    assert!(again.starts_with("policy and host rules are the same as before: version 2 ("), "{again}");
    let shown = it.fleet.done(&["config", "show"]);
    assert!(shown.contains("\npolicy.category.d.interval = \"20days\"\n"), "{shown}");
    assert!(it.fleet.done(&["stats"]).contains("version 2"));
}
