//! A role's user at RabbitMQ. Commands are printed for `rabbitmqctl`, which works on a node of the broker only, and are applied over
//! the management plugin's HTTP API, which works from anywhere.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use common::config::{Config, without_password};
use common::queue::rabbitmq::Rights;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::user::{Role, Setup, User, is_server, path_of, setting};
use crate::usage::Usage;

/// How long the broker may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn setup(config: &Config, user: &User, vhost: Option<&str>) -> anyhow::Result<Setup> {
    let (vhost, name) = (vhost_of(config, vhost)?, &user.name);
    let Rights { configure, write, read } = rights(config, user);
    let mut lines = Vec::new();
    if vhost != "/" {
        lines
            .push(format!("rabbitmqctl list_vhosts --silent | grep -qxF '{vhost}' || rabbitmqctl add_vhost '{vhost}'"));
    }
    if let Some(password) = &user.password {
        // In a variable, not as an argument: arguments are listed among processes. `printf` is the shell's own.
        lines.push(format!("password='{}'", password.reveal()));
        lines.push(format!(
            "printf '%s\\n' \"$password\" | rabbitmqctl add_user '{name}' || printf '%s\\n' \"$password\" | rabbitmqctl change_password '{name}'"
        ));
    }
    lines.push(format!("rabbitmqctl set_user_tags '{name}'"));
    lines.push(format!("rabbitmqctl set_permissions -p '{vhost}' '{name}' '{configure}' '{write}' '{read}'"));
    let path = if vhost == "/" { "%2f" } else { vhost.as_str() };
    let setting = setting(&config.queue.url, "FEEDFLEET_QUEUE__URL", user, "amqps", path);
    let paste = "paste these commands into a shell at a node of the broker, as a user who may call rabbitmqctl";
    Ok(Setup { paste, commands: lines.join("\n"), settings: setting.into_iter().collect() })
}

pub(super) async fn apply(config: &Config, user: &User, vhost: Option<&str>, url: &str) -> anyhow::Result<()> {
    let vhost = vhost_of(config, vhost)?;
    let base: Url = url.parse().ok().filter(|url: &Url| matches!(url.scheme(), "http" | "https")).ok_or_else(|| {
        anyhow!(Usage(
            "the administrator's URL for RabbitMQ is that of its management plugin, such as http://admin:PASSWORD@HOST:15672"
                .into()
        ))
    })?;
    let Rights { configure, write, read } = rights(config, user);
    let http = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
    let http = http.build().context("cannot prepare requests")?;
    if vhost != "/" {
        put(&http, &base, &["vhosts", &vhost], &json!({})).await?;
    }
    let users = ["users", &user.name];
    let (hash, algorithm) = match &user.password {
        Some(password) => (json!(password.rabbitmq_hash()), json!("rabbit_password_hashing_sha256")),
        None => {
            let known = ask(&http, &base, Method::GET, &users, None).await;
            let known = known.with_context(|| format!("cannot set the rights of {}, which has to exist", user.name))?;
            let mut known: Value = serde_json::from_str(&known).context("RabbitMQ's answer is not JSON")?;
            (known["password_hash"].take(), known["hashing_algorithm"].take())
        }
    };
    // Without tags, also of a user that keeps its password: as administrator it could read everything.
    let account = json!({ "password_hash": hash, "hashing_algorithm": algorithm, "tags": "" });
    put(&http, &base, &users, &account).await?;
    let permissions = json!({ "configure": configure, "write": write, "read": read });
    put(&http, &base, &["permissions", &vhost, &user.name], &permissions).await
}

/// Both answers of the management plugin to a `PUT`, 201 and 204, mean that it is as requested.
async fn put(http: &reqwest::Client, base: &Url, path: &[&str], body: &Value) -> anyhow::Result<()> {
    ask(http, base, Method::PUT, path, Some(body)).await.map(drop)
}

/// Returns the body of the management plugin's answer.
async fn ask(
    http: &reqwest::Client,
    base: &Url,
    method: Method,
    path: &[&str],
    body: Option<&Value>,
) -> anyhow::Result<String> {
    let mut url = base.clone();
    url.path_segments_mut().map_err(|()| anyhow!("a URL without a path"))?.pop_if_empty().push("api").extend(path);
    let shown = without_password(url.as_str());
    let mut request = http.request(method.clone(), url).header("content-type", "application/json");
    if let Some(body) = body {
        request = request.body(body.to_string());
    }
    let unreachable = || format!("cannot reach the management plugin of RabbitMQ at {shown}");
    let answer = request.send().await.map_err(reqwest::Error::without_url).with_context(unreachable)?;
    if !answer.status().is_success() {
        bail!(
            "RabbitMQ refused {method} {shown}: {}; the URL needs a user with the tag administrator",
            answer.status()
        );
    }
    answer.text().await.map_err(reqwest::Error::without_url).with_context(unreachable)
}

fn rights(config: &Config, user: &User) -> Rights {
    match user.role {
        Role::Scheduler => Rights::of_scheduler(&config.namespace),
        Role::Worker => Rights::of_worker(&config.namespace, user.logins),
    }
}

fn vhost_of(config: &Config, given: Option<&str>) -> anyhow::Result<String> {
    let configured = is_server(&config.queue.url).then(|| path_of(&config.queue.url)).flatten();
    let vhost = match (given, configured) {
        (Some(given), _) => given.to_owned(),
        (None, Some(configured)) => configured.replace("%2f", "/").replace("%2F", "/"),
        (None, None) => "/".to_owned(),
    };
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if vhost.is_empty() || !vhost.chars().all(plain) {
        bail!(Usage("the virtual host must be letters, digits, '-', '_', '.' and '/'; name it with --vhost".into()));
    }
    Ok(vhost)
}
