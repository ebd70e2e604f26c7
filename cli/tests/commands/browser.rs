//! A real headless Chromium, driven over WebDriver: a few JSON calls, for which a library would be larger than this
//! file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The key of element references in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The emulated device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) mobile: bool,
}

/// The colour schemes that a person may prefer.
const SCHEMES: [&str; 2] = ["light", "dark"];

pub(crate) const PHONE: Device = Device { name: "phone", width: 390, height: 844, mobile: true };
pub(crate) const DESKTOP: Device = Device { name: "desktop", width: 1280, height: 900, mobile: false };

/// A browser with a separate profile; it ends when dropped.
pub(crate) struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    device: Device,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser.
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
            // no DNS names except this machine
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

    /// Sends a command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params })).await
    }

    /// Opens a URL and waits until it is loaded.
    pub(crate) async fn go(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// Returns the result of a script.
    pub(crate) async fn eval(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until a script's expression is true in a completely loaded page.
    pub(crate) async fn until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let script = format!("return document.readyState == 'complete' && Boolean({expression})");
        // During navigation there is no page to query.
        while self.try_post("/execute/sync", json!({ "script": script, "args": [] })).await.1 != true {
            assert!(Instant::now() < deadline, "never: {expression}\n{}", self.text("body").await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the path of the first element that matches a CSS selector; waits for it.
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

    /// Performs an action on the first element that matches a CSS selector.
    async fn act(&self, selector: &str, action: &str, body: Value) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.find(selector).await;
            let (ok, value) = self.try_post(&format!("{element}/{action}"), body.clone()).await;
            if ok {
                return;
            }
            // A live page may have replaced the element.
            let is_gone = value["error"] == "stale element reference" && Instant::now() < deadline;
            assert!(is_gone, "{action} of {selector}: {value}");
        }
    }

    /// Clicks like a person; fails if another element covers it.
    pub(crate) async fn click(&self, selector: &str) {
        self.act(selector, "click", json!({})).await;
    }

    /// Replaces the text of a field.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        self.act(selector, "clear", json!({})).await;
        self.act(selector, "value", json!({ "text": text })).await;
    }

    /// Chooses a file in a field for one.
    pub(crate) async fn choose(&self, selector: &str, file: &std::path::Path) {
        self.act(selector, "value", json!({ "text": file.display().to_string() })).await;
    }

    /// Returns what axe-core finds wrong with the page, one line for each element (`axe/`, from npm, in the version that its
    /// first line names).
    async fn violations(&self) -> Vec<String> {
        let script = concat!(
            include_str!("axe/axe.min.js"),
            "; const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then((found) => \
             done(found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.target} ${node.html.slice(0, 150)}`))));"
        );
        let found = self.post("/execute/async", json!({ "script": script, "args": [] })).await;
        found.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    /// Moves the mouse over the middle of an element; without one, to the corner of the page.
    pub(crate) async fn hover(&self, selector: Option<&str>) {
        let (mut x, mut y) = (json!(1), json!(1));
        if let Some(selector) = selector {
            let middle = format!(
                "const at = document.querySelector({}); at.scrollIntoView({{ block: 'center' }}); \
                 const box = at.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]",
                json!(selector)
            );
            let mut middle = self.eval(&middle).await;
            (x, y) = (middle[0].take(), middle[1].take());
        }
        self.devtools("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y })).await;
    }

    /// Presses a key that produces no text.
    pub(crate) async fn press(&self, key: &str, code: u32, text: &str) {
        let event =
            |kind: &str| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.devtools("Input.dispatchKeyEvent", event("keyDown")).await;
        self.devtools("Input.dispatchKeyEvent", event("keyUp")).await;
    }

    /// Returns whether the page has an element.
    pub(crate) async fn has(&self, selector: &str) -> bool {
        self.eval(&format!("return document.querySelector({}) != null", json!(selector))).await == true
    }

    /// Presses Tab until an element that matches has the focus.
    pub(crate) async fn reach(&self, selector: &str) {
        self.until(&format!("document.querySelector({})", json!(selector))).await;
        let is_reached = format!("return document.activeElement?.matches({}) ?? false", json!(selector));
        for _ in 0..250 {
            if self.eval(&is_reached).await == true {
                return;
            }
            self.tab().await;
        }
        panic!("Tab does not lead to {selector} on {}", self.text("h1").await);
    }

    /// Reaches an element, and presses Enter on it.
    pub(crate) async fn enter(&self, selector: &str) {
        self.reach(selector).await;
        self.press("Enter", 13, "\r").await;
    }

    /// Reaches a box, and ticks it with Space.
    pub(crate) async fn space(&self, selector: &str) {
        self.reach(selector).await;
        self.press(" ", 32, " ").await;
    }

    /// Reaches a field, and replaces its text.
    pub(crate) async fn write(&self, selector: &str, text: &str) {
        self.reach(selector).await;
        self.eval("document.activeElement.select()").await;
        self.devtools("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses the Tab key; returns the text of the focused element, and whether it has a visible focus ring.
    pub(crate) async fn tab(&self) -> (String, bool) {
        let tab = |kind: &str| json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
        self.devtools("Input.dispatchKeyEvent", tab("keyDown")).await;
        self.devtools("Input.dispatchKeyEvent", tab("keyUp")).await;
        let focus = "const at = document.activeElement, style = getComputedStyle(at); \
            return [at.textContent.trim() || at.name, style.outlineStyle != 'none' && parseFloat(style.outlineWidth) >= 2]";
        let focus = self.eval(focus).await;
        (focus[0].as_str().unwrap_or_default().to_owned(), focus[1] == true)
    }

    /// Returns the visible text.
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

    /// Waits until an element has this in its text: a click may return before the page that it leads to is there. Needs no script.
    pub(crate) async fn until_text(&self, selector: &str, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text(selector).await;
            if text.contains(part) {
                return;
            }
            assert!(Instant::now() < deadline, "{selector} has no '{part}': {text}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks in both colour schemes that nothing is wider than the screen, lacks contrast, lacks a text alternative, or comes from
    /// another server.
    pub(crate) async fn check(&self, name: &str) {
        for scheme in SCHEMES {
            self.check_in(name, scheme).await;
        }
    }

    /// The same, and takes screenshots of the whole page, in `target/tmp/pages`.
    pub(crate) async fn look(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
        std::fs::create_dir_all(&folder).unwrap();
        for scheme in SCHEMES {
            self.check_in(name, scheme).await;
            let size = &self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"];
            let clip = json!({ "x": 0, "y": 0, "width": self.device.width, "height": size["height"], "scale": 1 });
            let picture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
            let picture = self.devtools("Page.captureScreenshot", picture).await;
            let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
            std::fs::write(folder.join(format!("{name}-{}-{scheme}.png", self.device.name)), bytes).unwrap();
        }
    }

    async fn check_in(&self, name: &str, scheme: &str) {
        let widths = self.eval("return [document.documentElement.scrollWidth, innerWidth]").await;
        let [page, screen] = [0, 1].map(|index| widths[index].as_u64().unwrap());
        assert!(page <= screen, "{name} is {page} wide, the {} {screen}", self.device.name);
        let foreign = "return performance.getEntriesByType('resource').map((one) => one.name) \
                       .filter((name) => new URL(name).origin != location.origin)";
        assert_eq!(self.eval(foreign).await, json!([]), "{name} loads from other servers");
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
        let wrong = self.eval(include_str!("accessible.js")).await;
        assert_eq!(wrong, json!([]), "{name}, {}, {scheme}", self.device.name);
        let violations = self.violations().await;
        assert!(violations.is_empty(), "{name}, {}, {scheme}: {}", self.device.name, violations.join("\n"));
    }

    /// Returns the console's warnings and errors since the last call.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "browser" })).await;
        let lines = log.as_array().unwrap().iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If the driver ends before the session, it leaves its browser behind.
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
