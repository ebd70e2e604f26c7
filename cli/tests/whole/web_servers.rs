//! Real web servers with folders of static feeds: private instances of nginx, Apache and Caddy, and their responses to
//! a fleet.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::testing::Port;

use crate::harness::{Home, PATIENCE};

/// A private web server that serves the folder `www`. Stopped when dropped.
pub(crate) struct WebServer {
    name: &'static str,
    child: Child,
    folder: tempfile::TempDir,
    port: Port,
}

const TYPES: &str = "types { application/rss+xml rss; application/atom+xml atom; application/feed+json json; }";

impl WebServer {
    /// Starts nginx, with these lines in its section `http`.
    pub(crate) fn nginx(more: &str) -> Self {
        Self::start("nginx", "nginx-light", "nginx.conf", |path, port| {
            format!(
                "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
                 events {{}}\n\
                 http {{ access_log {path}/access.log; client_body_temp_path {path}/b; proxy_temp_path {path}/p;\n\
                   fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
                   {TYPES} {more}\n\
                   server {{ listen 127.0.0.1:{port}; root {path}/www; }} }}\n"
            )
        })
    }

    /// Starts nginx as many sites configure it, with compression on the fly.
    fn nginx_with_gzip() -> Self {
        Self::nginx("gzip on; gzip_min_length 0; gzip_types application/rss+xml;")
    }

    /// Starts Apache with `mod_deflate`, which changes the ETags of compressed responses.
    fn apache_with_deflate() -> Self {
        Self::start("apache2", "apache2-bin", "apache.conf", |path, port| {
            let modules: String = ["mpm_event", "authz_core", "mime", "filter", "deflate"]
                .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
                .concat();
            format!(
                "ServerRoot {path}\nServerName 127.0.0.1\nListen 127.0.0.1:{port}\nPidFile {path}/pid\n\
                 DefaultRuntimeDir {path}\nMutex file:{path} default\nErrorLog {path}/error.log\n{modules}\
                 User www-data\nGroup www-data\nTypesConfig /dev/null\nAddType application/rss+xml .rss\n\
                 DocumentRoot {path}/www\n<Directory {path}/www>\nRequire all granted\n</Directory>\n\
                 AddOutputFilterByType DEFLATE application/rss+xml\n\
                 CustomLog {path}/access.log \"\\\"%r\\\" %>s %B\"\n"
            )
        })
    }

    /// Starts Caddy with `encode`.
    fn caddy() -> Self {
        Self::start("caddy", "caddy", "Caddyfile", |path, port| {
            format!(
                "{{\n admin off\n auto_https off\n storage file_system {path}/caddy\n}}\n\
                 http://127.0.0.1:{port} {{\n bind 127.0.0.1\n root * {path}/www\n encode zstd gzip\n\
                 header *.rss Content-Type application/rss+xml\n file_server\n\
                 log {{\n output file {path}/access.log\n format json\n }}\n}}\n"
            )
        })
    }

    fn start(
        name: &'static str,
        package: &str,
        config_name: &str,
        config: impl FnOnce(&std::path::Display<'_>, u16) -> String,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Apache's children run as another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let port = Port::reserved();
        let path = folder.path().display();
        std::fs::create_dir(folder.path().join("www")).unwrap();
        let config_file = folder.path().join(config_name);
        std::fs::write(&config_file, config(&path, port.number())).unwrap();
        let mut command = Command::new(name);
        match name {
            "nginx" => command.arg("-e").arg(folder.path().join("start.log")).arg("-c").arg(&config_file),
            "apache2" => command.args(["-D", "FOREGROUND", "-f"]).arg(&config_file),
            _ => command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&config_file),
        };
        command.env("HOME", folder.path()).env("XDG_DATA_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
        let output = std::fs::File::create(folder.path().join("output.log")).unwrap();
        let started = command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).spawn();
        let mut child = started.unwrap_or_else(|error| {
            panic!("{name} is needed for this test ({error}): `dev/test` installs it, or `apt-get install {package}`")
        });
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(port.address()).is_err() {
            let said = || std::fs::read_to_string(folder.path().join("output.log")).unwrap_or_default();
            assert!(child.try_wait().unwrap().is_none(), "{name} ended: {}", said());
            assert!(Instant::now() < deadline, "{name} does not listen: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
        WebServer { name, child, folder, port }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("www").join(name)
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.port.address())
    }

    /// Returns every response of the server, from its access log: path, status, bytes.
    fn all_answers(&self) -> Vec<(String, u16, u64)> {
        let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        // The last line may be incomplete.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.filter_map(if self.name == "caddy" { of_json } else { of_common_log }).collect()
    }

    /// Returns the server's responses for a file: status, bytes.
    pub(crate) fn answers(&self, name: &str) -> Vec<(u16, u64)> {
        let path = format!("/{name}");
        let of_file = self.all_answers().into_iter().filter(|(asked, ..)| *asked == path);
        of_file.map(|(_, status, bytes)| (status, bytes)).collect()
    }
}

/// Parses `.. "GET /path HTTP/1.1" 200 123 ..`.
fn of_common_log(line: &str) -> Option<(String, u16, u64)> {
    let (_, request) = line.split_once("\"GET ")?;
    let (request, after) = request.split_once("\" ")?;
    let mut fields = after.split_whitespace();
    let path = request.split(' ').next()?;
    Some((path.to_owned(), fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn of_json(line: &str) -> Option<(String, u16, u64)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = line["request"]["uri"].as_str()?.to_owned();
    Some((path, u16::try_from(line["status"].as_u64()?).ok()?, line["size"].as_u64()?))
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // A graceful stop, so that Apache's children exit as well.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

const FEEDS: usize = 50;
const POLLS: usize = 20;

const CONFIG: &str = r#"
[policy]
mode = "classes"
import_spread = "0s"
min_interval = "100ms"
hot_minutes = false
no_validator_factor = 1.0
[policy.category.d]
interval = "100ms"
interval_max = "100ms"
[host]
gap = "1ms"
"#;

fn document(number: usize) -> String {
    let items: String = (0..10)
        .map(|item| {
            let text = "Fog over the harbour, clearing from the west by noon. ".repeat(3);
            format!(
                "<item><guid>{number}-{item}</guid><title>Day {item}</title><description>{text}</description></item>"
            )
        })
        .collect();
    format!("<rss version=\"2.0\"><channel><title>Weather {number}</title>{items}</channel></rss>")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers_answer_304_to_all_polls_but_the_first() {
    let servers = [WebServer::nginx_with_gzip(), WebServer::apache_with_deflate(), WebServer::caddy()];
    let mut urls = Vec::new();
    for server in &servers {
        for number in 0..FEEDS {
            let name = format!("{number}.rss");
            std::fs::write(server.file(&name), document(number)).unwrap();
            urls.push(server.url(&name));
        }
        let request =
            reqwest::Client::new().get(server.url("0.rss")).header("Accept-Encoding", "gzip, br, zstd, deflate");
        let answer = request.send().await.unwrap();
        let field = |name: &str| answer.headers().get(name).map(|value| format!("{value:?}")).unwrap_or_default();
        println!("{}: coding {}, tag {}", server.name, field("content-encoding"), field("etag"));
        assert!(!field("content-encoding").is_empty(), "{} does not compress", server.name);
    }
    let home = Home::new(CONFIG);
    let list = home.opml(urls);
    let mut fleet = home.start(&[&list]);
    let enough = |server: &WebServer| {
        let mut polls = HashMap::<String, usize>::new();
        server.all_answers().into_iter().for_each(|(path, ..)| *polls.entry(path).or_default() += 1);
        // The test itself requested one of them.
        polls.len() == FEEDS && polls.iter().all(|(path, polls)| *polls >= POLLS + usize::from(path == "/0.rss"))
    };
    let limit = PATIENCE * 5;
    fleet
        .wait_within(limit, "twenty polls of each", async |_| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            servers.iter().all(enough).then_some(())
        })
        .await;
    fleet.stop();

    for server in &servers {
        let (mut later, mut not_modified) = (0, 0);
        let mut by_path: HashMap<String, Vec<u16>> = HashMap::new();
        for (path, status, _) in server.all_answers() {
            by_path.entry(path).or_default().push(status);
        }
        for number in 0..FEEDS {
            let ours = &by_path[&format!("/{number}.rss")][usize::from(number == 0)..];
            assert_eq!(ours[0], 200, "{}: the first poll of {number}.rss", server.name);
            later += ours.len() - 1;
            not_modified += ours[1..].iter().filter(|status| **status == 304).count();
        }
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let share = not_modified as f64 / later as f64;
        println!(
            "{}: {FEEDS} feeds, {later} polls after the first, {not_modified} answered 304 ({:.2} %)",
            server.name,
            share * 100.0
        );
        assert!(later >= FEEDS * (POLLS - 1));
        assert!(share >= 0.99, "{}: {share}", server.name);
    }
}
