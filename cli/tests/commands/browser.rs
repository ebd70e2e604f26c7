//! A real Chromium without a window, driven over WebDriver: a few calls in JSON, for which a library would be larger than
//! this page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The name by which WebDriver knows elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// What the browser is looked at through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) mobile: bool,
}

pub(crate) const PHONE: Device = Device { name: "phone", width: 390, height: 844, mobile: true };
pub(crate) const DESKTOP: Device = Device { name: "desktop", width: 1280, height: 900, mobile: false };

/// A browser with a profile of its own; it ends when dropped.
pub(crate) struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    device: Device,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    pub(crate) async fn open(device: Device) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver does not start ({error}); dev/install gets it"));
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let started = lines.into_iter().find_map(|line| {
            Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        let server = format!("http://127.0.0.1:{}", started.expect("chromedriver says its port"));
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless=new",
            // as root, in a container
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-proxy-server",
            // no name but of this machine
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            &folder,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let mut browser = Browser { driver, http, session: format!("{server}/session"), device, _profile: profile };
        let opened = browser.post("", wanted).await;
        browser.session = format!("{server}/session/{}", opened["sessionId"].as_str().unwrap());
        let Device { width, height, mobile, .. } = device;
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        browser
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (ok, value) = self.try_post(path, body).await;
        assert!(ok, "{path}: {value}");
        value
    }

    async fn try_post(&self, path: &str, body: Value) -> (bool, Value) {
        let request = self.http.post(format!("{}{path}", self.session)).body(body.to_string());
        let answer = request.header("content-type", "application/json").send().await.unwrap();
        let ok = answer.status().is_success();
        let mut value: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (ok, value["value"].take())
    }

    /// A command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params })).await
    }

    /// Goes to an address and waits until it is loaded.
    pub(crate) async fn go(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// What a script's body returns.
    pub(crate) async fn eval(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until a script's expression is true of a page that is all there.
    pub(crate) async fn until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let script = format!("return document.readyState == 'complete' && Boolean({expression})");
        // Between two pages there is nothing to ask.
        while self.try_post("/execute/sync", json!({ "script": script, "args": [] })).await.1 != true {
            assert!(Instant::now() < deadline, "never: {expression}\n{}", self.text("body").await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The path of the first element that a CSS selector finds; waits for it.
    async fn find(&self, selector: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let wanted = json!({ "using": "css selector", "value": selector });
            let (ok, found) = self.try_post("/element", wanted).await;
            if ok {
                return format!("/element/{}", found[ELEMENT].as_str().unwrap());
            }
            assert!(Instant::now() < deadline, "there is no {selector}: {found}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Does something to the first element that a CSS selector finds.
    async fn act(&self, selector: &str, action: &str, body: Value) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.find(selector).await;
            let (ok, value) = self.try_post(&format!("{element}/{action}"), body.clone()).await;
            if ok {
                return;
            }
            // A page that shows news may have put another one in its place.
            let is_gone = value["error"] == "stale element reference" && Instant::now() < deadline;
            assert!(is_gone, "{action} of {selector}: {value}");
        }
    }

    /// Clicks as a person does: refused where something else lies on top.
    pub(crate) async fn click(&self, selector: &str) {
        self.act(selector, "click", json!({})).await;
    }

    /// Types into a field in place of what was there.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        self.act(selector, "clear", json!({})).await;
        self.act(selector, "value", json!({ "text": text })).await;
    }

    /// Presses the Tab key: the text of what has the focus then, and whether a frame shows that.
    pub(crate) async fn tab(&self) -> (String, bool) {
        let tab = |kind: &str| json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
        self.devtools("Input.dispatchKeyEvent", tab("keyDown")).await;
        self.devtools("Input.dispatchKeyEvent", tab("keyUp")).await;
        let focus = "const at = document.activeElement, style = getComputedStyle(at); \
            return [at.textContent.trim() || at.name, style.outlineStyle != 'none' && parseFloat(style.outlineWidth) >= 2]";
        let focus = self.eval(focus).await;
        (focus[0].as_str().unwrap_or_default().to_owned(), focus[1] == true)
    }

    /// What a person reads there.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.find(selector).await;
            let answer = self.http.get(format!("{}{element}/text", self.session)).send().await.unwrap();
            let value: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            if let Some(text) = value["value"].as_str() {
                return text.to_owned();
            }
            assert!(Instant::now() < deadline, "{selector} has no text: {value}");
        }
    }

    /// Pictures of the whole page in both schemes, in `target/tmp/pages`; nothing may be wider than the screen, or hard to
    /// read, or without words for who does not see it.
    pub(crate) async fn look(&self, name: &str) {
        let widths = self.eval("return [document.documentElement.scrollWidth, innerWidth]").await;
        let [page, screen] = [0, 1].map(|index| widths[index].as_u64().unwrap());
        assert!(page <= screen, "{name} is {page} wide, the {} {screen}", self.device.name);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
        std::fs::create_dir_all(&folder).unwrap();
        for scheme in ["light", "dark"] {
            let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            self.devtools("Emulation.setEmulatedMedia", features).await;
            let wrong = self.eval(include_str!("accessible.js")).await;
            assert_eq!(wrong, json!([]), "{name}, {}, {scheme}", self.device.name);
            let size = &self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"];
            let clip = json!({ "x": 0, "y": 0, "width": self.device.width, "height": size["height"], "scale": 1 });
            let picture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
            let picture = self.devtools("Page.captureScreenshot", picture).await;
            let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
            std::fs::write(folder.join(format!("{name}-{}-{scheme}.png", self.device.name)), bytes).unwrap();
        }
    }

    /// What the console complained of since the last call.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "browser" })).await;
        let lines = log.as_array().unwrap().iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver leaves its browser behind when it ends before the session does.
        let rest = self.session.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        if let Some((address, path)) = rest
            && let Ok(mut driver) = TcpStream::connect(address)
        {
            let end = format!("DELETE /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            let _ = driver.write_all(end.as_bytes());
            let _ = driver.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = driver.read_exact(&mut [0; 12]);
        }
        let _ = Command::new("kill").args(["-TERM", &self.driver.id().to_string()]).status();
        let _ = self.driver.wait();
    }
}
