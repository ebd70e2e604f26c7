//! Refuses configurations that would break a promise (a lease that ends during a fetch, two polls of a host at the same
//! time), or that cannot work. Each refusal names the key and what would be accepted.

use std::collections::HashSet;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::host_rules::{check_host_rule, host_rule_key};
use super::redis_url::RedisUrl;
use super::refusal::{Refusal, Refusals};
use super::servers;
use super::{
    ApiConfig, CategoriesConfig, Config, DeliveryConfig, FailingConfig, FetchConfig, HubAccess, PenaltyConfig,
    PolicyConfig, SchedulerConfig, ServerConfig, hash_of_token,
};
use crate::duration::as_text;
use crate::labels::read_labels;
use crate::secrets::{SecretsConfig, key_bytes};

/// Shortest API token, in characters: a random one of this length cannot be guessed.
const MIN_TOKEN_LENGTH: usize = 16;
/// What anybody tries first: the examples of the documentation, and words that people hash to try out `token_hash`.
const KNOWN_TOKENS: [&str; 11] = [
    "AT-LEAST-16-CHARACTERS",
    "TOKEN",
    "",
    "123456",
    "admin",
    "changeme",
    "feedfleet",
    "password",
    "secret",
    "test",
    "token",
];

/// Most requests to subscribers in flight: each holds a request's body in memory, and needs a file descriptor.
const MOST_DELIVERIES: usize = 10_000;
/// Lowest `fetch.address_rate` other than 0, per second: one request in 12 days. The time between two must fit into a duration.
const LOWEST_ADDRESS_RATE: f64 = 0.000_001;
/// With a longer gap a target would fall behind for ever.
const LONGEST_TARGET_GAP: Duration = Duration::from_secs(60);

impl Config {
    /// Returns what is wrong with the values taken together; empty when all is well.
    pub fn check(&self) -> Vec<Refusal> {
        let mut refusals = Refusals::default();
        self.check_backends(&mut refusals);
        check_policy(&self.policy, &mut refusals);
        check_categories(&self.policy.category, &mut refusals);
        check_penalty(&self.policy.penalty, &mut refusals);
        check_failing(&self.policy.failing, &mut refusals);
        check_fetch(&self.fetch, &mut refusals);
        self.check_hosts(&mut refusals);
        check_scheduler(&self.scheduler, &mut refusals);
        self.check_leases(&mut refusals);
        check_api(&self.api, &mut refusals);
        check_secrets(&self.secrets, &mut refusals);
        check_public_url(self, &mut refusals);
        check_delivery(&self.delivery, &mut refusals);
        check_hub(self, &mut refusals);
        // A lease that expires before its renewal is answered leaves a gap.
        refusals.require(self.push.lease >= Duration::from_secs(1), "push.lease", || "must be at least 1s".into());
        refusals.positive("retention.events", self.retention.events);
        refusals.positive("retention.audit", self.retention.audit);
        let (rows, document) = (self.quota.rows_per_feed, 2 * self.fetch.max_entries as u64);
        refusals.require(rows == 0 || rows >= document, "quota.rows_per_feed", || {
            format!("must be at least twice fetch.max_entries ({document}), or 0 for no limit")
        });
        let level = &self.log.level;
        let mut parts = level.split(',').filter(|part| !part.is_empty()).peekable();
        refusals.require(parts.peek().is_some() && parts.all(has_level), "log.level", || {
            format!(
                "cannot be \"{level}\": write error, warn, info, debug or trace, or a list per module such as \
                 info,worker=debug"
            )
        });
        refusals.0
    }

    fn check_backends(&self, refusals: &mut Refusals) {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let fits = (1..=40).contains(&self.namespace.len()) && self.namespace.chars().all(plain);
        refusals.require(fits, "namespace", || "must be 1 to 40 of a-z, 0-9, '-' and '_'".into());
        let known = ["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| self.store.url.starts_with(scheme));
        refusals.require(known, "store.url", || "must be sqlite://PATH, sqlite::memory: or postgres://..".into());
        if known && self.store.url.starts_with("postgres") {
            refusals.unless("store.url", servers::postgres(&self.store));
        }
        let schedule = self.schedule.server();
        for (key, server) in [("schedule.url", &schedule), ("gate.url", &self.gate)] {
            let of_memory = server.url == "memory:";
            let of_redis = server.url.starts_with("redis");
            refusals.require(of_redis || of_memory, key, || "must be memory: or redis://..".to_owned());
            refusals.unless(key, RedisUrl::parse(&server.url).err().filter(|_| of_redis));
        }
        let queue = &self.queue;
        let of_rabbitmq = ["amqp:", "amqps:"].iter().any(|scheme| queue.url.starts_with(scheme));
        let known = of_rabbitmq || queue.url == "memory:";
        refusals.require(known, "queue.url", || "must be memory: or amqp://..".to_owned());
        let mut urls = queue.urls().into_iter().filter(|_| of_rabbitmq);
        refusals.unless("queue.url", urls.find_map(|url| servers::rabbitmq(&url)));
        for (section, server) in
            [("store", &self.store), ("schedule", &schedule), ("gate", &self.gate), ("queue", &self.queue)]
        {
            check_files(section, server, refusals);
        }
        refusals.at_least("schedule.shards", self.schedule.shards.into(), 1);
    }

    fn check_hosts(&self, refusals: &mut Refusals) {
        refusals.at_least("host.burst", self.host.burst as usize, 1);
        refusals.at_least("host.parallel", self.host.parallel as usize, 1);
        refusals.parallel("host.parallel", self.host.parallel);
        for rule in &self.host_rule {
            let key = host_rule_key(&rule.domain());
            let of_rule = check_host_rule(rule).into_iter();
            refusals.0.extend(
                of_rule.map(|Refusal { key: field, reason }| Refusal { key: format!("{key}.{field}"), reason }),
            );
        }
    }

    /// A feed is claimed once at a time only while no lease ends before its fetch and its report.
    fn check_leases(&self, refusals: &mut Refusals) {
        let needed = self.fetch.timeout + self.worker.report_delay;
        refusals.require(self.scheduler.fetch_lease > needed, "scheduler.fetch_lease", || {
            let needed = as_text(needed);
            format!("must be longer than fetch.timeout and worker.report_delay together ({needed})")
        });
        refusals.at_least("worker.concurrency", self.worker.concurrency, 1);
        refusals.at_least("worker.job_batch", self.worker.job_batch, 1);
        refusals.at_least("worker.report_batch", self.worker.report_batch, 1);
        let room = self.scheduler.max_queued_jobs >= self.worker.job_batch;
        refusals.require(room, "scheduler.max_queued_jobs", || {
            format!("must be at least worker.job_batch ({})", self.worker.job_batch)
        });
    }
}

/// Returns whether a part of `log.level` is a level, or a module with a level. The filter itself takes a misspelt level
/// for the name of a module.
fn has_level(part: &str) -> bool {
    let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
    !level.is_empty() && level.parse::<LevelFilter>().is_ok()
}

fn check_policy(policy: &PolicyConfig, refusals: &mut Refusals) {
    refusals.positive("policy.min_interval", policy.min_interval);
    refusals
        .ordered(("policy.min_interval", policy.min_interval), ("policy.default_interval", policy.default_interval));
    refusals.within_a_year("policy.interval", policy.interval);
    refusals.require((0.0..=1.0).contains(&policy.salt), "policy.salt", || "must be between 0 and 1".into());
    let rate = policy.polls_per_second;
    refusals
        .require(rate >= 0.0 && rate.is_finite(), "policy.polls_per_second", || "must be 0 (no cap) or more".into());
    let price = policy.price;
    refusals.require(price > 0.0 && price.is_finite(), "policy.price", || "must be more than 0".into());
    refusals.positive("policy.stretch_ceiling", policy.stretch_ceiling);
    refusals.positive("policy.retry_after_ceiling", policy.retry_after_ceiling);
    refusals.positive("policy.blacklist_after", policy.blacklist_after);
    refusals.at_least("policy.move_sightings", policy.move_sightings as usize, 1);
    let factor = policy.no_validator_factor;
    refusals.require(factor >= 1.0 && factor.is_finite(), "policy.no_validator_factor", || "must be 1 or more".into());
    let factor = policy.push_factor;
    refusals.require(factor >= 1.0 && factor.is_finite(), "policy.push_factor", || "must be 1 or more".into());
    refusals.positive("policy.archive_gap", policy.archive_gap);
    let factor = policy.silent_factor;
    let is_factor = factor == 0.0 || factor >= 1.0 && factor.is_finite();
    refusals.require(is_factor, "policy.silent_factor", || "must be 0 (off), or 1 or more".into());
}

fn check_categories(category: &CategoriesConfig, refusals: &mut Refusals) {
    let CategoriesConfig { a, b, c, d } = category;
    refusals.positive("policy.category.a.interval", a.interval);
    let needed = a.interval.saturating_add(a.fetch_allowance);
    refusals.require(needed <= a.promise, "policy.category.a.interval", || {
        let promise = as_text(a.promise);
        format!("and policy.category.a.fetch_allowance together must not be longer than policy.category.a.promise ({promise})")
    });
    let intervals = [
        ("policy.category.b.interval", b.interval),
        ("policy.category.c.interval", c.interval),
        ("policy.category.d.interval", d.interval),
        ("policy.category.d.idle_interval", d.idle_interval),
        ("policy.category.b.min", b.min),
        ("policy.category.c.min", c.min),
        ("policy.category.d.min", d.min),
    ];
    for (key, interval) in intervals {
        refusals.positive(key, interval);
    }
    let ranges = [
        (("policy.category.b.min", b.min), ("policy.category.b.max", b.max)),
        (("policy.category.c.min", c.min), ("policy.category.c.max", c.max)),
        (("policy.category.d.min", d.min), ("policy.category.d.max", d.max)),
        (("policy.category.c.interval", c.interval), ("policy.category.c.interval_max", c.interval_max)),
        (("policy.category.d.interval", d.interval), ("policy.category.d.interval_max", d.interval_max)),
        (
            ("policy.category.d.idle_interval", d.idle_interval),
            ("policy.category.d.idle_interval_max", d.idle_interval_max),
        ),
    ];
    for (low, high) in ranges {
        refusals.ordered(low, high);
    }
}

/// No delay may begin beyond the ceiling that it is promised never to exceed.
fn check_penalty(penalty: &PenaltyConfig, refusals: &mut Refusals) {
    refusals.at_least("policy.penalty.box_after", penalty.box_after as usize, 1);
    // The ceiling cuts it, so that a lower ceiling alone is a valid configuration.
    refusals.positive("policy.penalty.crashed", penalty.crashed);
    for (key, delay) in [
        ("policy.penalty.transient_first", penalty.transient_first),
        ("policy.penalty.box", penalty.first_box),
        ("policy.penalty.server_error", penalty.server_error),
        ("policy.penalty.not_found", penalty.not_found),
        ("policy.penalty.client_error", penalty.client_error),
        ("policy.penalty.bad_feed", penalty.bad_feed),
        ("policy.penalty.throttled", penalty.throttled),
    ] {
        refusals.positive(key, delay);
        refusals.ordered((key, delay), ("policy.penalty.ceiling", penalty.ceiling));
    }
}

fn check_fetch(fetch: &FetchConfig, refusals: &mut Refusals) {
    refusals.positive("fetch.connect_timeout", fetch.connect_timeout);
    refusals.positive("fetch.idle_timeout", fetch.idle_timeout);
    refusals.positive("fetch.timeout", fetch.timeout);
    let address = &fetch.user_agent_url;
    let is_page = url::Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let printable = address.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '(' | ')' | ';'));
    refusals.require(address.is_empty() || is_page && printable, "fetch.user_agent_url", || {
        "must be the address of a page, such as https://example.com/about-our-reader".into()
    });
    let known = fetch.activitypub_key.is_empty() || !address.is_empty();
    refusals.require(known, "fetch.activitypub_key", || {
        "needs fetch.user_agent_url: the address of the actor with the public key".into()
    });
    let is_service = url::Url::parse(&fetch.at_service).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    refusals.require(is_service && !fetch.at_service.contains(['?', '#']), "fetch.at_service", || {
        "must be a service's address, such as https://public.api.bsky.app".into()
    });
    for (key, value) in [
        ("fetch.max_wire_bytes", fetch.max_wire_bytes),
        ("fetch.max_body_bytes", fetch.max_body_bytes),
        ("fetch.max_entries", fetch.max_entries),
        ("fetch.max_report_bytes", fetch.max_report_bytes),
        ("fetch.large_body_bytes", fetch.large_body_bytes),
        ("fetch.large_bodies", fetch.large_bodies),
        ("fetch.max_ratio", fetch.max_ratio as usize),
    ] {
        refusals.at_least(key, value, 1);
    }
    // What the HTTP library needs for its buffer, and more fields than ordinary answers have.
    refusals.at_least("fetch.max_header_bytes", fetch.max_header_bytes, 8192);
    refusals.at_least("fetch.max_headers", fetch.max_headers, 32);
    let rate = fetch.address_rate;
    let is_rate = rate == 0.0 || rate >= LOWEST_ADDRESS_RATE && rate.is_finite();
    refusals
        .require(is_rate, "fetch.address_rate", || format!("must be 0 (no limit) or at least {LOWEST_ADDRESS_RATE}"));
    refusals.at_least("fetch.address_parallel", fetch.address_parallel as usize, 1);
    for ports in &fetch.allow_ports {
        refusals.require(is_port_range(ports), "fetch.allow_ports", || {
            format!("cannot hold \"{ports}\"; a port is \"443\", a range \"8000-8999\"")
        });
    }
}

fn is_port_range(text: &str) -> bool {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
        (Ok(low), Ok(high)) => 0 < low && low <= high,
        _ => false,
    }
}

fn check_failing(failing: &FailingConfig, refusals: &mut Refusals) {
    let possible = (0.0..=1_000.0).contains(&failing.posts);
    refusals.require(possible, "policy.failing.posts", || "must be a number from 0 to 1000".into());
    refusals.ordered(("policy.failing.min", failing.min), ("policy.failing.max", failing.max));
}

fn check_scheduler(scheduler: &SchedulerConfig, refusals: &mut Refusals) {
    refusals.positive("scheduler.tick", scheduler.tick);
    refusals.positive("scheduler.claim_lease", scheduler.claim_lease);
    refusals.positive("scheduler.queue_lease", scheduler.queue_lease);
    refusals.positive("scheduler.fetch_lease", scheduler.fetch_lease);
    refusals.positive("scheduler.reconcile_interval", scheduler.reconcile_interval);
    refusals.at_least("scheduler.claim_batch", scheduler.claim_batch, 1);
    let month = Duration::from_secs(30 * 24 * 3600);
    let within = scheduler.unsigned_reports <= month;
    refusals.require(within, "scheduler.unsigned_reports", || "must be at most 30d".into());
}

/// Reasons do not repeat the key's name.
fn check_secrets(secrets: &SecretsConfig, refusals: &mut Refusals) {
    let wanted = "base64 of 32 random bytes, such as `openssl rand -base64 32` prints";
    let is_key = |text: &String| key_bytes(text).is_some();
    refusals.require(secrets.key.is_empty() || is_key(&secrets.key), "secrets.key", || format!("must be {wanted}"));
    let all_keys = secrets.old_keys.iter().all(is_key);
    refusals.require(all_keys, "secrets.old_keys", || format!("must each be {wanted}"));
    refusals.require(secrets.old_keys.is_empty() || !secrets.key.is_empty(), "secrets.key", || {
        "must be set where there are secrets.old_keys: it is what takes their place".into()
    });
}

/// Checks that `api.public_url` is an origin: it appears as one in `Signature-Agent`.
fn check_public_url(config: &Config, refusals: &mut Refusals) {
    let address = &config.api.public_url;
    let is_origin = url::Url::parse(address).is_ok_and(|url| {
        let is_web = matches!(url.scheme(), "http" | "https");
        is_web && url.origin().ascii_serialization() == address.trim_end_matches('/')
    });
    refusals.require(address.is_empty() || is_origin, "api.public_url", || {
        "must be scheme and host, such as https://fleet.example.com".into()
    });
    let is_found = config.fetch.signature_key.is_empty() || address.starts_with("https:");
    refusals.require(is_found, "fetch.signature_key", || {
        "needs api.public_url with https: that is where servers look for the public key".into()
    });
}

fn check_delivery(delivery: &DeliveryConfig, refusals: &mut Refusals) {
    refusals.at_least("delivery.concurrency", delivery.concurrency, 2);
    refusals.require(delivery.concurrency <= MOST_DELIVERIES, "delivery.concurrency", || {
        format!("must be at most {MOST_DELIVERIES}")
    });
    refusals.at_least("delivery.target_parallel", delivery.target_parallel, 1);
    refusals.require(delivery.target_gap <= LONGEST_TARGET_GAP, "delivery.target_gap", || {
        format!("must not be longer than {}", as_text(LONGEST_TARGET_GAP))
    });
    refusals.positive("delivery.timeout", delivery.timeout);
    refusals.positive("delivery.give_up_after", delivery.give_up_after);
}

fn check_hub(config: &Config, refusals: &mut Refusals) {
    let delivery = &config.delivery;
    let (most, bytes) = DeliveryConfig::MOST_TEXTS;
    refusals.require(delivery.exchange_texts.len() <= most, "delivery.exchange_texts", || {
        format!("must not have more than {most} texts")
    });
    for text in &delivery.exchange_texts {
        let fits = (1..=bytes).contains(&text.to_lowercase().len()) && !text.chars().any(char::is_control);
        refusals.require(fits, "delivery.exchange_texts", || {
            format!("\"{}\" must have 1 to {bytes} bytes and no control characters", text.escape_debug())
        });
    }
    refusals.positive("delivery.hub_lease_min", delivery.hub_lease_min);
    refusals.require(delivery.hub_lease_min <= delivery.hub_lease_max, "delivery.hub_lease_min", || {
        "must not be longer than delivery.hub_lease_max".into()
    });
    let between = delivery.hub_lease_min..=delivery.hub_lease_max;
    refusals.require(between.contains(&delivery.hub_lease), "delivery.hub_lease", || {
        "must not be shorter than delivery.hub_lease_min or longer than delivery.hub_lease_max".into()
    });
    if delivery.hub == HubAccess::Off {
        return;
    }
    refusals.require(!config.api.public_url.is_empty(), "delivery.hub", || {
        "needs api.public_url: notifications name the hub's address".into()
    });
    refusals.require(!config.secrets.key.is_empty(), "delivery.hub", || {
        "needs secrets.key: the secrets of subscribers are stored encrypted".into()
    });
}

fn check_api(api: &ApiConfig, refusals: &mut Refusals) {
    refusals.require(!api.tokens.is_empty() || api.listen.ip().is_loopback(), "api.listen", || {
        "must be a loopback address such as 127.0.0.1:7878 as long as there are no [[api.tokens]]".into()
    });
    refusals.positive("api.session", api.session);
    refusals.at_least("api.max_connections", api.max_connections, 16);
    refusals.at_least("api.max_connections_per_address", api.max_connections_per_address, 8);
    let anybody = api.trusted_proxies.iter().any(|network| network.prefix_len() == 0);
    refusals.require(!anybody, "api.trusted_proxies", || {
        "must name the networks of your proxies: anybody else could claim to be another caller".into()
    });
    for origin in &api.allow_origins {
        let is_origin = origin == "*"
            || url::Url::parse(origin).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == *origin
            });
        refusals.require(is_origin, "api.allow_origins", || {
            format!(
                "cannot hold \"{origin}\"; an origin is scheme and host, such as https://reader.example.com, or \"*\""
            )
        });
    }
    let mut names = HashSet::new();
    let mut secrets = HashSet::new();
    for (position, token) in api.tokens.iter().enumerate() {
        let key = &format!("api.tokens[{position}]");
        let fresh = !token.name.is_empty() && names.insert(token.name.as_str());
        refusals.require(fresh, key, || "must have different names".into());
        let own = !["hub", "loopback", "nobody", "signal", "start"].contains(&token.name.as_str());
        refusals.require(own, key, || {
            format!("hold \"{}\", which is the name of what has no token; choose another name", token.name)
        });
        let long = token.token.len() >= MIN_TOKEN_LENGTH && token.token.bytes().all(|byte| byte.is_ascii_graphic());
        let is_hash = token.token_hash.len() == 64 && token.token_hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        refusals.require(token.token.is_empty() != token.token_hash.is_empty(), key, || {
            format!("hold \"{}\", which needs a token or a token_hash, and not both", token.name)
        });
        refusals.require(long || token.token.is_empty(), key, || {
            format!("hold \"{}\", whose token must be at least {MIN_TOKEN_LENGTH} letters, digits or signs", token.name)
        });
        refusals.require(is_hash || token.token_hash.is_empty(), key, || {
            format!("hold \"{}\", whose token_hash must be the 64 digits that sha256sum prints", token.name)
        });
        let guessed = (long || is_hash) && KNOWN_TOKENS.iter().any(|known| hash_of_token(known) == token.hash());
        refusals.require(!guessed, key, || {
            format!("hold \"{}\", whose token anybody can guess; generate one with `openssl rand -hex 20`", token.name)
        });
        let labels = token.labels.as_deref().map(read_labels);
        let named = labels.as_ref().is_none_or(|labels| labels.as_ref().is_ok_and(|labels| !labels.is_empty()));
        refusals.require(named, key, || {
            let why = labels.and_then(Result::err).unwrap_or_else(|| "leave them out for a token for all feeds".into());
            format!("hold \"{}\", whose labels cannot be: {why}", token.name)
        });
        refusals.require(secrets.insert(token.hash()), key, || {
            format!("hold \"{}\", whose token another one has too", token.name)
        });
    }
}
/// A certificate without its key, or files beside a server without TLS, are mistakes.
fn check_files(section: &str, server: &ServerConfig, refusals: &mut Refusals) {
    let pair = server.client_cert.is_empty() == server.client_key.is_empty();
    refusals
        .require(pair, &format!("{section}.client_cert"), || format!("must be set together with {section}.client_key"));
    let named = [&server.ca_file, &server.client_cert].iter().any(|file| !file.is_empty());
    let plain = ["redis:", "redis-", "amqp:", "memory:", "sqlite:"].iter().any(|scheme| server.url.starts_with(scheme));
    refusals.require(!(named && plain), &format!("{section}.ca_file"), || {
        format!("needs TLS: {section}.url must begin with rediss:, rediss-, amqps: or postgres:")
    });
}
