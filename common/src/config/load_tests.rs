use std::io::Write;
use std::time::Duration;

use super::*;
use crate::config::{PolicyMode, without_password};

fn environment(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    let owned: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    owned.into_iter()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn from_file(text: &str) -> Result<Loaded, ConfigError> {
    load(Some(file(text).path()), std::iter::empty(), &[])
}

fn from_environment(name: &str, value: &str) -> Result<Loaded, ConfigError> {
    load(None, environment(&[(name, value)]), &[])
}

fn source<'a>(loaded: &'a Loaded, key: &str) -> &'a Source {
    &loaded.settings.iter().find(|setting| setting.key == key).unwrap().source
}

#[test]
fn the_defaults_load_and_are_accepted() {
    let loaded = load(None, std::iter::empty(), &[]).unwrap();
    assert_eq!(loaded.config.policy.salt, 0.1);
    assert!(loaded.settings.iter().all(|setting| setting.source == Source::Default));
    assert!(loaded.settings.iter().any(|setting| setting.key == "host_rule.\"reddit.com\""));
}

#[test]
fn later_layers_win_and_each_value_knows_its_layer() {
    let file = file("[policy]\nsalt = 0.2\nmode = \"classes\"\n[worker]\nconcurrency = 4\n");
    let env = environment(&[("FEEDFLEET_POLICY__SALT", "0.3"), ("FEEDFLEET_WORKER__CONCURRENCY", "1_000")]);
    let loaded = load(Some(file.path()), env, &[("worker.concurrency", Value::Integer(7))]).unwrap();
    assert_eq!(loaded.config.policy.mode, PolicyMode::Classes);
    assert_eq!(loaded.config.policy.salt, 0.3);
    assert_eq!(loaded.config.worker.concurrency, 7);
    assert_eq!(source(&loaded, "policy.mode"), &Source::File { path: file.path().to_owned(), line: 3 });
    assert_eq!(source(&loaded, "policy.salt"), &Source::Environment("FEEDFLEET_POLICY__SALT".into()));
    assert_eq!(source(&loaded, "worker.concurrency"), &Source::Flag("worker.concurrency".into()));
    assert_eq!(source(&loaded, "fetch.timeout"), &Source::Default);
}

#[test]
fn lists_in_the_environment_are_toml_or_separated_by_commas() {
    for text in ["10.0.0.0/8, 127.0.0.0/8", "[\"10.0.0.0/8\", \"127.0.0.0/8\"]"] {
        let loaded = from_environment("FEEDFLEET_FETCH__ALLOW_NETWORKS", text).unwrap();
        assert_eq!(loaded.config.fetch.allow_networks.len(), 2, "{text}");
    }
    let none = from_environment("FEEDFLEET_FETCH__ALLOW_PORTS", "").unwrap();
    assert!(none.config.fetch.allow_ports.is_empty());
}

#[test]
fn an_address_is_the_network_of_this_one_address() {
    let set = |key: &str, text: &str| load(None, std::iter::empty(), &[(key, text.into())]);
    for key in ["fetch.allow_networks", "fetch.address_exempt", "api.trusted_proxies"] {
        let Config { fetch, api, .. } = set(key, "127.0.0.1, ::1, 10.0.0.0/8").unwrap().config;
        let networks = ["127.0.0.1/32", "::1/128", "10.0.0.0/8"].map(|text| text.parse::<ipnet::IpNet>().unwrap());
        let lists = [fetch.allow_networks, fetch.address_exempt, api.trusted_proxies];
        assert!(lists.contains(&networks.to_vec()), "{key}: {lists:?}");
        let error = set(key, "127.0.0.1/33").unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("127.0.0.1/33"), "{error}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one_and_its_place() {
    let file = file("[policy]\nslat = 0.2\n");
    let error = load(Some(file.path()), std::iter::empty(), &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("unknown key policy.slat in line 2 of {}; did you mean policy.salt?", file.path().display())
    );
    let error = from_environment("FEEDFLEET_POLICY_SALT", "1").unwrap_err().to_string();
    assert!(error.contains("did you mean FEEDFLEET_POLICY__SALT?"), "{error}");
    let error = from_file("[colours]\n").unwrap_err().to_string();
    assert!(error.contains("colours") && error.contains("config print"), "{error}");
    let error = from_file("[[host_rule]]\nmatch = \"a.org\"\ngab = \"1s\"\n").unwrap_err().to_string();
    assert!(error.contains("host_rule.\"a.org\".gab") && error.contains("did you mean gap?"), "{error}");
    let rule = "[{ match = \"a.org\", gab = \"1s\" }]";
    let error = from_environment("FEEDFLEET_HOST_RULE", rule).unwrap_err().to_string();
    assert_eq!(error, "unknown key host_rule.\"a.org\".gab in the environment; did you mean gap?");
}

#[test]
fn each_wrong_value_is_named_with_what_would_be_accepted() {
    let text = "[policy]\nsalt = \"much\"\nmode = \"clever\"\nmin_interval = 15\n[worker]\ngentle = 1\nconcurrency = -1\n\
                [api]\nlisten = \"everywhere\"\n[fetch]\nallow_networks = [\"home\"]\nallow_ports = 80\n[scheduler]\ntick = \"soon\"\n";
    let error = from_file(text).unwrap_err();
    assert_eq!(error.problems.len(), 9, "{error}");
    let error = error.to_string();
    for part in [
        "policy.salt in",
        "must be a number, such as 0.1",
        "expected `adaptive` or `classes`",
        "must be text, such as \"15m\"",
        "must be true or false",
        "must be a whole number, such as 256",
        "such as \"127.0.0.1:7878\"",
        "such as [\"127.0.0.0/8\"]",
        "must be a list, such as [\"80\"",
        "'soon' is not a duration",
    ] {
        assert!(error.contains(part), "{part} is missing in\n{error}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_listed_each_with_its_line() {
    let text = "[policy]\nslat = 0.2\nprice = 0.0\n\n[fetch]\ntimeout = \"soon\"\nallow_ports = [\"http\"]\n\n\
                [scheduler]\nfetch_lease = \"30s\"\n\n\
                [[host_rule]]\nmatch = \"a.org\"\ngap = 1\n\n[[host_rule]]\nmatch = \"b.org\"\nparallel = 0\ngab = 1\n";
    let file = file(text);
    let wrong = load(Some(file.path()), std::iter::empty(), &[]).unwrap_err();
    let error = wrong.to_string().replace(file.path().to_str().unwrap(), "FILE");
    for part in [
        "unknown key policy.slat in line 2 of FILE",
        "policy.price in line 3 of FILE",
        "fetch.timeout in line 6 of FILE cannot be",
        "fetch.allow_ports in line 7 of FILE",
        "host_rule.\"a.org\".gap in line 14 of FILE",
        "host_rule.\"b.org\".parallel in line 18 of FILE must be at least 1",
        "unknown key host_rule.\"b.org\".gab in line 19 of FILE",
    ] {
        assert!(error.contains(part), "{part} is missing in\n{error}");
    }
    // The lease may be long enough for the timeout that was meant.
    assert_eq!(wrong.problems.len(), 7, "{error}");
    // The field that a rule may have meant names no key outside of it.
    let text = "[policy]\ndefault_interval = \"1m\"\n[[host_rule]]\nmatch = \"a.org\"\nintervall = \"1h\"\n";
    let error = from_file(text).unwrap_err().to_string();
    assert!(
        error.contains("did you mean interval?") && error.contains("policy.min_interval in the defaults"),
        "{error}"
    );
    // A rule that does not say which hosts it is for is refused for that alone.
    let error = from_file("[[host_rule]]\nmatch = 1\nparallel = 0\n").unwrap_err();
    assert!(error.problems.len() == 1 && error.to_string().starts_with("host_rule[0].match in line 2 of"), "{error}");
}

#[test]
fn a_section_is_no_value_and_bad_toml_has_a_line() {
    let error = from_environment("FEEDFLEET_POLICY", "classes").unwrap_err().to_string();
    assert!(error.contains("policy in FEEDFLEET_POLICY is a section"), "{error}");
    let error = from_file("namespace = \"a\"\nsalt =\n").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let error = load(Some(Path::new("/no/such/file")), std::iter::empty(), &[]).unwrap_err().to_string();
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn variables_of_the_commands_and_of_kubernetes_are_no_configuration() {
    let strangers = [
        ("FEEDFLEET_SERVER", "http://127.0.0.1:1"),
        ("FEEDFLEET_TOKEN", "x"),
        ("FEEDFLEET_SERVICE_HOST", "10.0.0.1"),
        ("FEEDFLEET_API_SERVICE_PORT_HTTP", "80"),
        ("FEEDFLEET_PORT", "tcp://10.0.0.1:80"),
        ("FEEDFLEET_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("PATH", "/bin"),
    ];
    load(None, environment(&strangers), &[]).unwrap();
}

#[test]
fn host_rules_of_a_file_are_added_and_replace_shipped_ones_of_the_same_match() {
    let loaded = from_file(
        "[[host_rule]]\nmatch = \"Reddit.com\"\ngap = \"2m\"\n[[host_rule]]\nmatch = \"example.com\"\nparallel = 2\n",
    )
    .unwrap();
    let rule = |name: &str| loaded.config.host_rule.iter().find(|rule| rule.matches(name)).unwrap();
    assert_eq!(rule("reddit.com").gap, Some(Duration::from_secs(120)));
    assert!(!rule("reddit.com").shared);
    assert_eq!(rule("example.com").parallel, Some(2));
    assert!(rule("craigslist.org").interval.is_some());
    let shipped = load(None, std::iter::empty(), &[]).unwrap().config.host_rule.len();
    assert_eq!(loaded.config.host_rule.len(), shipped + 1);
}

#[test]
fn every_shipped_rule_says_why_it_is_there() {
    let rules = load(None, std::iter::empty(), &[]).unwrap().config.host_rule;
    let shipped =
        ["substack", "blogspot", "wordpress", "medium", "youtube", "reddit"].map(|name| format!("{name}.com"));
    for domain in shipped.into_iter().chain(["openrss.org".to_owned(), "craigslist.org".to_owned()]) {
        let rule = rules.iter().find(|rule| rule.matches(&format!("www.{domain}")));
        assert!(rule.is_some_and(|rule| rule.reason.len() > 20), "{domain}");
    }
    assert!(rules.len() >= 50);
    let mut with_source = 0;
    for rule in &rules {
        let (reason, proof) = rule.reason.rsplit_once(" (").unwrap();
        let (source, date) = proof.trim_end_matches(')').rsplit_once(", ").unwrap_or(("", proof.trim_end_matches(')')));
        with_source += usize::from(!source.is_empty());
        assert!(reason.len() > 20 && (source.is_empty() || source.starts_with("https://")), "{}", rule.r#match);
        let is_ours = reason.starts_with("our own choice: ");
        assert_eq!(source.is_empty(), is_ours, "{}: a source, or our own choice", rule.r#match);
        assert!(date.len() == 7 && date.starts_with("20"), "{} of {}", date, rule.r#match);
    }
    assert!((38..rules.len()).contains(&with_source), "{with_source}");
}

#[test]
fn secrets_are_neither_shown_nor_repeated_in_errors() {
    let text = "[[api.tokens]]\nname = \"ops\"\ntoken = \"correct-horse-battery\"\nrole = \"write\"\n";
    let loaded = from_file(text).unwrap();
    assert_eq!(loaded.config.api.tokens[0].token, "correct-horse-battery");
    assert!(!format!("{:?}{:?}", loaded.settings, loaded.config).contains("battery"));
    let hash = crate::config::hash_of_token("correct-horse-battery");
    assert_eq!(hash, "62249369389075490555a758353aec61500c6218fa597252d52dc4bd0148f12d", "as sha256sum prints it");
    let wrong = "number 1 has a field of the wrong kind";
    for (broken, why) in [
        ("role = \"owner\"\n", wrong),
        ("role = 1\n", wrong),
        ("", "number 1 has no role"),
        ("role = \"read\"\nexpiry = 1\n", "number 1 has the unknown field expiry"),
    ] {
        let error = from_file(&text.replace("role = \"write\"\n", broken)).unwrap_err().to_string();
        assert!(error.contains("api.tokens") && error.contains(why) && !error.contains("battery"), "{error}");
    }
    let error = load(None, std::iter::empty(), &[("store.url", "mysql://me:battery@db/x".into())]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("store.url in the command line must be sqlite://PATH"), "{error}");
    assert!(!error.contains("battery"), "{error}");
}

#[test]
fn keys_of_secrets_are_read_from_anywhere_and_shown_nowhere() {
    let key = |byte: u8| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [byte; 32]);
    let env = [("FEEDFLEET_SECRETS__KEY", key(7)), ("FEEDFLEET_SECRETS__OLD_KEYS", format!("{},{}", key(8), key(9)))];
    let loaded = load(None, env.into_iter().map(|(name, value)| (name.to_owned(), value)), &[]).unwrap();
    assert_eq!(loaded.config.secrets.old_keys, [key(8), key(9)]);
    let printed = format!("{:?}{:?}{}", loaded.settings, loaded.config, toml::to_string(&loaded.config).unwrap());
    assert!(
        loaded.settings.iter().any(|setting| setting.key == "secrets.key" && setting.value.as_str() == Some("***"))
    );
    for byte in [7, 8, 9] {
        assert!(!printed.contains(&key(byte)[..20]), "{printed}");
    }
    for (name, value) in [
        ("secrets.key", "correct-horse-battery".into()),
        ("secrets.key", vec!["battery"].into()),
        ("secrets.old_keys", vec!["battery".to_owned(), key(7)].into()),
        ("secrets.old_keys", vec![key(7)].into()),
        ("secrets.old_keys", toml::Value::Array(vec![toml::Value::Integer(7)])),
    ] {
        let error = load(None, std::iter::empty(), &[(name, value)]).unwrap_err().to_string();
        assert!(error.contains("secrets.") && !error.contains("battery") && !error.contains(&key(7)), "{error}");
    }
}

#[test]
fn configurations_that_would_break_a_promise_are_refused_by_key() {
    let refused = [
        ("scheduler.fetch_lease", "30s"),
        ("scheduler.unsigned_reports", "31d"),
        ("policy.salt", "1.5"),
        ("policy.salt", "nan"),
        ("policy.price", "0.0"),
        ("policy.silent_factor", "0.5"),
        ("policy.min_interval", "0s"),
        ("policy.interval", "366d"),
        ("policy.category.b.min", "25h"),
        ("policy.category.c.interval", "3h"),
        ("policy.category.d.idle_interval", "9h"),
        ("policy.category.a.interval", "91s"),
        ("fetch.max_header_bytes", "8191"),
        ("policy.penalty.not_found", "25h"),
        ("host.parallel", "0"),
        ("host.burst", "0"),
        ("worker.concurrency", "0"),
        ("scheduler.max_queued_jobs", "15"),
        ("fetch.allow_ports", "80,http"),
        ("fetch.user_agent_url", "me"),
        ("api.listen", "0.0.0.0:7878"),
        ("namespace", "Feed Fleet"),
        ("schedule.url", "localhost:6379"),
        ("schedule.shards", "0"),
        ("queue.url", "redis://localhost"),
    ];
    for (key, value) in refused {
        let error = load(None, std::iter::empty(), &[(key, value.into())]).unwrap_err();
        assert!(matches!(&error.problems[..], [Problem::Refused { key: named, .. }] if named == key), "{key}: {error}");
    }
    for (key, value) in [("parallel", "0"), ("interval", "\"366d\""), ("gap", "\"366d\""), ("soft_for", "\"366d\"")] {
        let rule = format!("[[host_rule]]\nmatch = \"a.org\"\n{key} = {value}\n");
        let error = from_file(&rule).unwrap_err().to_string();
        assert!(error.starts_with(&format!("host_rule.\"a.org\".{key} in line 3 of /")), "{error}");
    }
    for texts in [vec![String::new()], vec!["a\nb".into()], vec!["x".repeat(201)], vec!["x".into(); 33]] {
        let error = from_file(&format!("[delivery]\nexchange_texts = {texts:?}\n")).unwrap_err().to_string();
        assert!(error.starts_with("delivery.exchange_texts in line 2 of /"), "{error}");
    }
    assert!(from_file("[delivery]\nexchange_texts = [\"Open Source\"]\n").is_ok());
}

#[test]
fn a_rate_whose_gap_is_no_duration_is_refused() {
    let set = |rate: f64| load(None, std::iter::empty(), &[("fetch.address_rate", rate.into())]);
    for rate in [0.0, 0.000_001, 20.0] {
        assert_eq!(set(rate).unwrap().config.fetch.address_rate, rate);
    }
    for rate in [1e-20, 0.000_000_9, -1.0, f64::INFINITY, f64::NAN] {
        let error = set(rate).unwrap_err().to_string();
        let reason = "must be 0 (no limit) or at least 0.000001";
        assert_eq!(error, format!("fetch.address_rate in the command line {reason}"), "{rate}");
    }
}

#[test]
fn without_loopback_tokens_are_asked_for_and_short_or_doubled_ones_refused() {
    let token =
        |name: &str, token: &str| format!("[[api.tokens]]\nname = \"{name}\"\ntoken = \"{token}\"\nrole = \"read\"\n");
    let open = "[api]\nlisten = \"0.0.0.0:80\"\n";
    let one = token("a", "0123456789abcdef");
    from_file(&format!("{open}{one}")).unwrap();
    let hash = crate::config::hash_of_token("0123456789abcdef");
    let hashed = one.replace("token = \"0123456789abcdef\"", &format!("token_hash = \"{hash}\""));
    let loaded = from_file(&format!("{open}{hashed}expires = \"2027-01-01T00:00:00Z\"\n")).unwrap();
    assert_eq!(loaded.config.api.tokens[0].hash(), hash);
    assert!(loaded.config.api.tokens[0].expires.is_some());
    let limited = from_file(&format!("{open}{one}labels = [\"news\"]\n")).unwrap();
    assert_eq!(limited.config.api.tokens[0].labels.as_deref(), Some(&["news".to_owned()][..]));
    assert!(!format!("{:?}", loaded.settings).contains(&hash), "{:?}", loaded.settings);
    for tokens in [
        token("a", "short"),
        format!("{one}{one}"),
        format!("{one}{}", token("b", "0123456789abcdef")),
        format!("{one}{}", token("b", "").replace("token = \"\"", &format!("token_hash = \"{hash}\""))),
        token("b", "").replace("token = \"\"", "token_hash = \"0123\""),
        token("b", ""),
        format!("{one}token_hash = \"{hash}\"\n"),
        format!("{one}labels = []\n"),
        format!("{one}labels = [\"\"]\n"),
    ] {
        let error = from_file(&format!("{open}{tokens}")).unwrap_err().to_string();
        assert!(error.contains("api.tokens") && !error.contains("0123456789abcdef"), "{error}");
    }
    let two = format!("{open}{one}{}", token("b", "short"));
    let error = from_file(&two).unwrap_err().to_string();
    assert!(error.starts_with("api.tokens in line 7 of /") && error.contains("hold \"b\""), "{error}");
    let error = from_file(&two.replace("\"short\"", "1")).unwrap_err().to_string();
    assert!(error.starts_with("api.tokens in line 7 of /") && error.contains("number 2 has"), "{error}");
    let words = ["test", "password", "admin", "secret", "changeme", "token", "feedfleet", ""];
    let hashed = words.map(|word| format!("token_hash = \"{}\"", crate::config::hash_of_token(word)));
    let guessed = hashed.map(|hash| token("a", "").replace("token = \"\"", &hash));
    for tokens in guessed.into_iter().chain([token("a", "AT-LEAST-16-CHARACTERS")]) {
        let error = from_file(&tokens).unwrap_err().to_string();
        let reason = "hold \"a\", whose token anybody can guess; generate one with `openssl rand -hex 20`";
        assert!(error.ends_with(reason), "{error}");
    }
    for reserved in ["hub", "loopback", "nobody", "signal", "start"] {
        let error = from_file(&format!("{open}{}", token(reserved, "fedcba9876543210"))).unwrap_err().to_string();
        assert!(error.contains("choose another name"), "{error}");
    }
}

#[test]
fn a_misspelt_log_level_is_refused_and_not_taken_for_a_module() {
    for level in
        ["info", "WARN", "off", "3", "info,", "info,worker=debug", "worker=Trace", "worker[fetch{host=a}]=debug"]
    {
        load(None, std::iter::empty(), &[("log.level", level.into())]).unwrap();
    }
    for level in ["", " ", "warning", "info,worker", "worker=dbug", "worker=", ",", "info, debug"] {
        let error = load(None, std::iter::empty(), &[("log.level", level.into())]).unwrap_err().to_string();
        let reason = "write error, warn, info, debug or trace, or a list per module such as info,worker=debug";
        assert_eq!(error, format!("log.level in the command line cannot be \"{level}\": {reason}"));
    }
}

#[test]
fn a_day_fits_into_seconds() {
    let scaled = "[policy]\nmin_interval = \"10ms\"\n[policy.category.a]\ninterval = \"10ms\"\npromise = \"30ms\"\nfetch_allowance = \"5ms\"\n\
                  [fetch]\ntimeout = \"300ms\"\n[scheduler]\nqueue_lease = \"500ms\"\nfetch_lease = \"400ms\"\n\
                  [host]\ngap = \"0s\"\n";
    let loaded = from_file(scaled).unwrap();
    assert_eq!(loaded.config.scheduler.fetch_lease, Duration::from_millis(400));
}

/// The lines of the defaults file, each key with its section and the comment above it.
fn documented_keys() -> BTreeMap<String, bool> {
    let mut keys = BTreeMap::new();
    let mut section = String::new();
    let mut documented = false;
    for line in DEFAULT_TOML.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned() + ".";
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            // A comment covers all keys of the paragraph that it opens.
            keys.insert(format!("{section}{key}"), documented);
            continue;
        }
        documented = match line {
            _ if line.starts_with('#') => true,
            "" => false,
            _ => documented,
        };
    }
    keys
}

#[test]
fn every_key_is_documented_above_its_default() {
    let documented = documented_keys();
    let loaded = load(None, std::iter::empty(), &[]).unwrap();
    for setting in loaded.settings.iter().filter(|setting| !setting.key.starts_with("host_rule")) {
        assert_eq!(documented.get(&setting.key), Some(&true), "{} has no comment in config.default.toml", setting.key);
    }
    for field in field_names::<HostRule>() {
        let mentioned = DEFAULT_TOML.lines().any(|line| line.starts_with('#') && line.contains(field));
        assert!(mentioned, "host_rule's {field} is not explained");
    }
}

#[test]
fn the_defaults_hold_every_key_that_can_be_set() {
    let tree = crate::config::default_table().unwrap();
    let written = Table::try_from(load(None, std::iter::empty(), &[]).unwrap().config).unwrap();
    let (mut known, mut fields) = (BTreeMap::new(), BTreeMap::new());
    collect_leaves("", &tree, &mut known);
    collect_leaves("", &written, &mut fields);
    assert_eq!(known.keys().collect::<Vec<_>>(), fields.keys().collect::<Vec<_>>());
}

#[test]
fn no_password_of_a_url_is_shown_wherever_it_stands() {
    for (text, shown) in [
        ("postgres://ann:zzz@h/db", "postgres://ann:***@h/db"),
        ("postgres://h/db?password=zzz&sslmode=require", "postgres://h/db?password=***&sslmode=require"),
        ("postgres://ann:zzz@h/db?sslpassword=zzz", "postgres://ann:***@h/db?sslpassword=***"),
        ("redis://h/?Token=zzz", "redis://h/?Token=***"),
        ("redis-sentinel://u:zzz@a:1,b/0?sentinelPassword=zzz", "redis-sentinel://u:***@a:1,b/0?sentinelPassword=***"),
        ("redis-cluster://u:zzz@a:1,b", "redis-cluster://u:***@a:1,b"),
        ("postgres://h/db?pass%77ord=zzz", "postgres://h/db?password=***"),
        ("ann:zzz@h/db", "***"),
        ("//h?password=zzz", "***"),
        ("amqp://ann:zzz@h1:5672,h2/v", "amqp://ann:***@h1:5672,h2/v"),
        ("sqlite://data/feedfleet.db", "sqlite://data/feedfleet.db"),
        ("memory:", "memory:"),
        ("", ""),
    ] {
        assert_eq!(without_password(text), shown, "{text}");
    }
}

#[test]
fn a_quoted_text_of_a_flag_is_meant_without_its_quotes() {
    for text in ["classes", "\"classes\"", "'classes'"] {
        let loaded = load(None, std::iter::empty(), &[("policy.mode", Value::String(text.to_owned()))]).unwrap();
        assert_eq!(loaded.config.policy.mode, PolicyMode::Classes, "{text}");
    }
}
