//! An operator's work on the pages with the keyboard alone: Tab, Enter, Space and text, as wide as a phone and as a desktop.

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;

use crate::browser::{Browser, DESKTOP, Device, PHONE};
use crate::fleet::Fleet;

const TOKEN: &str = "0123456789abcdef0123";

/// Returns a fleet with a login, and a key for the secrets of subscriptions.
async fn fleet() -> (Fleet, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let config =
        format!("[[api.tokens]]\nname = \"ann\"\ntoken = \"{TOKEN}\"\nrole = \"write\"\n[secrets]\nkey = \"{key}\"\n");
    std::fs::write(&file, config).unwrap();
    let fleet = Fleet::start(&["--config", file.to_str().unwrap()]).await;
    for path in ["/harbour", "/pier", "/tides", "/fog"] {
        fleet.origin.set(path, Script::feed(Feed::rss().title(format!("The {path} feed")).initial(3)));
    }
    let page = "<html><head><link rel=alternate type='application/rss+xml' href='/harbour'></head></html>";
    fleet.origin.set("/page", Script::body("text/html", page));
    (fleet, folder)
}

impl Browser {
    /// Opens the page that a link of the navigation leads to.
    async fn follow(&self, name: &str) {
        self.enter(&format!("nav a[href$='{name}']")).await;
        self.until(&format!("location.pathname == '/{name}'")).await;
    }

    async fn says(&self, words: &str) {
        self.until(&format!("document.body.textContent.includes({})", serde_json::json!(words))).await;
    }
}

async fn work(device: Device) {
    let (fleet, _folder) = fleet().await;
    let browser = Browser::open(device).await;
    browser.go(&format!("{}/feeds/add", fleet.server)).await;
    browser.until("location.pathname == '/login'").await;
    browser.write("input[name=token]", TOKEN).await;
    browser.enter("#main button").await;
    browser.until("location.pathname == '/feeds/add'").await;
    add(&fleet, &browser).await;
    settings(&browser).await;
    several(&browser).await;
    hosts_and_requeues(&fleet, &browser).await;
    subscriptions(&browser).await;
    fleet_and_ends(&browser).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Adds feeds by address and by file, and takes a page back that was merged into a feed.
async fn add(fleet: &Fleet, browser: &Browser) {
    let add = "#main form[action$='feeds/add']";
    browser.write(&format!("{add} textarea"), &fleet.origin.url("/harbour")).await;
    browser.write(&format!("{add} input[name=labels]"), "harbour").await;
    browser.enter(&format!("{add} button")).await;
    browser.says("The feed is added.").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feeds.opml");
    let outline = |path: &str| format!("<outline type='rss' xmlUrl='{}'/>", fleet.origin.url(path));
    let outlines: String = ["/pier", "/tides", "/fog"].map(outline).concat();
    std::fs::write(&file, format!("<opml><body>{outlines}</body></opml>")).unwrap();
    browser.follow("feeds").await;
    browser.enter("a.button").await;
    browser.until("location.pathname == '/feeds/add'").await;
    // The system's own window for files is beyond a driver of browsers.
    browser.reach("input[type=file]").await;
    browser.choose("input[type=file]", &file).await;
    browser.enter("form[action$='feeds/import'] button").await;
    browser.says("3 added, 0 known already, 0 refused.").await;
    browser.write(&format!("{add} textarea"), &fleet.origin.url("/page")).await;
    browser.enter(&format!("{add} button")).await;
    browser.until("location.pathname == '/feeds/5'").await;
    while !browser.has("#buttons button[formaction$=unmove]").await {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        browser.go(&format!("{}/feeds/5", fleet.server)).await;
    }
    browser.enter("#buttons button[formaction$=unmove]").await;
    browser.says("The move is undone.").await;
}

/// Changes, refreshes, pauses, resumes and removes one feed.
async fn settings(browser: &Browser) {
    browser.follow("feeds").await;
    browser.write("input[name=q]", "harbour").await;
    browser.enter("form.search button").await;
    browser.enter("tbody th a").await;
    browser.until("location.pathname == '/feeds/1'").await;
    browser.enter("#buttons button").await;
    browser.until("document.querySelector('#done').textContent.startsWith('It will be polled')").await;
    browser.enter("#buttons button[formaction$=pause]").await;
    browser.enter("#buttons button[formaction$=resume]").await;
    browser.until("document.querySelector('#done').textContent == 'It is polled again.'").await;
    browser.enter("#main details summary").await;
    browser.write("input[name=subscribers]", "30").await;
    browser.write("input[name=interval]", "20m").await;
    browser.space("input[name=sla]").await;
    browser.enter("form[action$=change] button").await;
    browser.says("The settings are saved.").await;
    browser.until("document.querySelector('input[name=sla]').checked").await;
}

/// Selects feeds in the list, acts on them, and removes one.
async fn several(browser: &Browser) {
    browser.follow("feeds").await;
    for (action, said) in
        [("pause", "Paused: 2 feeds."), ("resume", "Resumed: 2 feeds."), ("requeue", "penalty: 2 feeds.")]
    {
        browser.space("input[name=id][value='2']").await;
        browser.space("input[name=id][value='3']").await;
        browser.enter(&format!("#several button[formaction$={action}]")).await;
        browser.says(said).await;
    }
    browser.space("input[name=id][value='2']").await;
    browser.write("#several input[name=label]", "pier").await;
    browser.enter("#several button[formaction$='/label']").await;
    browser.says("Labelled: 1 feed.").await;
    browser.space("input[name=id][value='4']").await;
    browser.space("#several input[name=sure]").await;
    browser.enter("#several button[formaction$=remove]").await;
    browser.says("Removed: 1 feed.").await;
}

async fn hosts_and_requeues(fleet: &Fleet, browser: &Browser) {
    let host = fleet.origin.url("/").trim_start_matches("http://").trim_end_matches('/').to_owned();
    browser.follow("hosts").await;
    browser.write("input[name=host]", &host).await;
    browser.enter("form.search button").await;
    browser.until("location.pathname.startsWith('/hosts/127.0.0.1')").await;
    browser.write("input[name=for]", "2h").await;
    browser.enter("form[action$='/block'] button").await;
    browser.says("It is blocked").await;
    browser.enter("form[action$='/unblock'] button").await;
    browser.says("It is not blocked any more.").await;
    browser.enter("details summary").await;
    browser.write("input[name=gap]", "1s").await;
    browser.write("input[name=reason]", "they asked us").await;
    browser.enter("form[action$='/rule'] button").await;
    browser.says("The rule is in force.").await;
    browser.enter("form[action$='/remove-rule'] button").await;
    browser.says("The rule is removed.").await;

    browser.follow("requeues").await;
    browser.space("input[name=all]").await;
    browser.write("input[name=rate]", "0.05").await;
    browser.enter("form[action$=plan] button").await;
    browser.until("document.querySelector('#plan')").await;
    browser.enter("#start").await;
    browser.until("document.querySelector('.running')").await;
    browser.enter(".running button").await;
    browser.says("The requeue is cancelled.").await;
}

async fn subscriptions(browser: &Browser) {
    browser.follow("subscriptions").await;
    browser.write("input[name=target]", "http://127.0.0.1:9/hook").await;
    browser.write("form[action$='/add'] input[name=kind]", "entry.*").await;
    browser.enter("form[action$='/add'] button").await;
    browser.until("document.querySelector('#secret')?.textContent.startsWith('whsec_')").await;
    browser.look("subscription").await;
    browser.enter("button[formaction$=rotate]").await;
    browser.says("The secret is replaced.").await;
    for (button, said) in
        [("form[action$=pause] button", "It is paused."), ("form[action$=resume] button", "It is resumed.")]
    {
        browser.enter(button).await;
        browser.says(said).await;
    }
    browser.enter("#main details:first-of-type summary").await;
    browser.write("input[name=ago]", "24h").await;
    browser.enter("form[action$=replay] button").await;
    browser.says("The events are sent again.").await;
    browser.follow("subscriptions").await;
    browser.look("subscriptions").await;
    browser.enter("tbody th a").await;
    browser.until("location.pathname == '/subscriptions/1'").await;
    browser.enter("#main details:last-of-type summary").await;
    browser.space("input[name=sure]").await;
    browser.enter("form[action$='/remove'] button").await;
    browser.says("The subscription is removed.").await;
}

async fn fleet_and_ends(browser: &Browser) {
    browser.enter("a.brand").await;
    browser.until("location.pathname == '/'").await;
    browser.enter("form[action$='fleet/pause'] button").await;
    browser.says("All polling is paused.").await;
    browser.enter("form[action$='fleet/resume'] button").await;
    browser.says("Polling is resumed.").await;
    browser.follow("entries").await;
    browser.write("input[name=q]", "no such words").await;
    browser.enter("form.search button").await;
    browser.says("No entries match").await;
    browser.follow("audit").await;
    browser.says("POST /fleet/resume").await;
    browser.follow("config").await;
    browser.enter("form[action$='config/reload'] button").await;
    browser.says("The configuration was read again").await;
    browser.enter(".out button").await;
    browser.until("location.pathname == '/login'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_with_the_keyboard_alone_on_a_phone() {
    work(PHONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_with_the_keyboard_alone_on_a_desktop() {
    work(DESKTOP).await;
}
