//! Labels and ids of callers' own, and entries and events that consumers choose.

use super::*;

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

fn message(answer: &Answer) -> &str {
    answer.body["error"].as_str().unwrap()
}

impl Fleet {
    /// Two feeds, the first with a label and entries 1 and 2, the second with entry 3.
    async fn two_feeds(&self) -> [i64; 2] {
        let url = "https://a.example/feed.xml";
        let body = json!({ "url": url, "labels": ["green", "blue"], "external_id": "x-1", "title": "mine" });
        let one = self.post("/api/v1/feeds", body).await.body["id"].as_i64().unwrap();
        let two = self.feed("https://b.example/feed.xml").await;
        self.polled(one, &["1", "2"]).await;
        self.polled(two, &["3"]).await;
        [one, two]
    }
}

#[tokio::test]
async fn labels_and_ids_are_set_changed_and_searched() {
    let fleet = Fleet::new().await;
    let [one, two] = fleet.two_feeds().await;
    let feed = fleet.get(&format!("/api/v1/feeds/{one}")).await.body;
    assert_eq!((&feed["labels"], &feed["external_id"]), (&json!(["blue", "green"]), &json!("x-1")));
    assert_eq!(feed["title"], "mine", "until it has one of its own");
    let listed = async |query: &str| {
        let list = fleet.get(&format!("/api/v1/feeds?{query}")).await.body;
        list["items"].as_array().unwrap().iter().map(|feed| feed["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(listed("label=green").await, [one]);
    assert_eq!(listed("external_id=x-1&sort=next_due").await, [one]);
    assert_eq!(listed("label=red").await, [0_i64; 0]);

    let path = format!("/api/v1/feeds/{two}");
    let change = json!({ "add_labels": ["green", " red "], "remove_labels": ["none"] });
    assert_eq!(fleet.ask("PATCH", &path, Some(change)).await.body["labels"], json!(["green", "red"]));
    assert_eq!(listed("label=green").await, [one, two]);
    let path = format!("/api/v1/feeds/{one}");
    let changed = fleet.ask("PATCH", &path, Some(json!({ "labels": [], "external_id": null }))).await.body;
    assert_eq!((&changed["labels"], changed.get("external_id")), (&json!([]), None));

    let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
    for (body, expected) in [
        (json!({ "labels": many }), "at most 32 labels"),
        (json!({ "add_labels": ["x".repeat(65)] }), "1 to 64 characters"),
        (json!({ "labels": ["a\u{1b}"] }), "without control characters"),
        (json!({ "labels": "green" }), "labels must be a list of texts"),
        (json!({ "external_id": "" }), "external_id must be 1 to 200 characters"),
        (json!({ "title": "another" }), "title cannot be changed"),
    ] {
        let refused = fleet.ask("PATCH", &path, Some(body)).await;
        assert!(refused.status == 400 && message(&refused).contains(expected), "{expected}: {}", refused.body);
    }
}

#[tokio::test]
async fn entries_carry_their_feed_and_are_filtered() {
    let fleet = Fleet::new().await;
    let [one, two] = fleet.two_feeds().await;
    let list = fleet.get("/api/v1/entries").await.body;
    assert_eq!((ids(&list), &list["more"]), (vec!["1", "2", "3"], &json!(false)));
    let first = &list["items"][0];
    assert_eq!((&first["feed_url"], &first["feed_title"]), (&json!("https://a.example/feed.xml"), &json!("mine")));
    assert_eq!((&first["labels"], &first["external_id"]), (&json!(["blue", "green"]), &json!("x-1")));
    for (query, expected) in [
        (format!("feed={two}"), vec!["3"]),
        ("feed=https://b.example/feed.xml".to_owned(), vec!["3"]),
        ("host=a.example:443".to_owned(), vec!["1", "2"]),
        ("label=green".to_owned(), vec!["1", "2"]),
        ("label=green&order=newest".to_owned(), vec!["2", "1"]),
        ("order=newest&limit=2".to_owned(), vec!["3", "2"]),
        ("category=A".to_owned(), vec![]),
        ("kind=entry.updated".to_owned(), vec![]),
        ("kind=entry.updated,entry.new&q=2".to_owned(), vec![]),
        ("since=2020-01-01T00:00:00Z".to_owned(), vec!["1", "2", "3"]),
        ("since=2999-01-01T00:00:00Z".to_owned(), vec![]),
        ("language=de".to_owned(), vec![]),
    ] {
        assert_eq!(ids(&fleet.get(&format!("/api/v1/entries?{query}")).await.body), expected, "{query}");
    }
    let parts = [1, 2].map(|part| format!("/api/v1/entries?part={part}/2"));
    let shared = fleet.get(&parts[0]).await.body["items"].as_array().unwrap().len()
        + fleet.get(&parts[1]).await.body["items"].as_array().unwrap().len();
    assert_eq!(shared, 3);

    let newest = fleet.get("/api/v1/entries?order=newest&limit=2").await.body;
    assert_eq!(newest["more"], true);
    let older = fleet.get(&format!("/api/v1/entries?order=newest&after={}", newest["next"])).await.body;
    assert_eq!((ids(&older), &older["more"]), (vec!["1"], &json!(false)));
    let of_feed = fleet.get(&format!("/api/v1/feeds/{one}/entries?order=newest&limit=1")).await.body;
    assert_eq!(ids(&of_feed), ["2"]);
}

#[tokio::test]
async fn filters_that_cannot_be_are_refused() {
    let fleet = Fleet::new().await;
    let [one, two] = fleet.two_feeds().await;
    for (query, status, expected) in [
        ("order=first".to_owned(), 400, "order must be oldest or newest"),
        ("kind=entry".to_owned(), 400, "kind must be one or more of entry.*"),
        ("part=3/2".to_owned(), 400, "part: it must be K/N"),
        ("since=yesterday".to_owned(), 400, "since must be a time in RFC 3339"),
        ("language=english!".to_owned(), 400, "language must be a language tag"),
        ("label=".to_owned(), 400, "label: a label must be 1 to 64 characters"),
        ("host=example.com".to_owned(), 400, "host must be a name and port"),
        ("category=Z".to_owned(), 400, "category must be one of A"),
        ("labl=x".to_owned(), 400, "did you mean label?"),
        ("feed=https://c.example/".to_owned(), 404, "no feed without credentials has the URL"),
        ("feed=99".to_owned(), 404, "there is no feed 99"),
    ] {
        let refused = fleet.get(&format!("/api/v1/entries?{query}")).await;
        assert!(refused.status == status && message(&refused).contains(expected), "{query}: {}", refused.body);
    }
    let twice = fleet.get(&format!("/api/v1/feeds/{one}/entries?feed={two}")).await;
    assert_eq!(twice.status, 400);
    let backwards = fleet.get("/api/v1/events/stream?order=newest").await;
    assert!(backwards.status == 400 && message(&backwards).contains("order must be oldest in a stream"));
}

#[tokio::test]
async fn a_list_of_entries_refuses_cursors_that_mean_nothing() {
    let fleet = Fleet::new().await;
    fleet.two_feeds().await;
    let epoch = fleet.ops.store.events(0, 1).await.unwrap().epoch;
    for query in ["after=1000000", "epoch=another", "after=1&epoch=another", "order=newest&after=1000000"] {
        let refused = fleet.get(&format!("/api/v1/entries?{query}")).await;
        assert_eq!((refused.status, &refused.body["epoch"]), (410, &json!(epoch)), "{query}: {}", refused.body);
        assert_eq!(refused.body["oldest"], 1);
    }
    let end = fleet.get("/api/v1/entries").await.body["next"].clone();
    let caught_up = fleet.get(&format!("/api/v1/entries?after={end}&epoch={epoch}")).await;
    assert_eq!((caught_up.status, &caught_up.body["next"], &caught_up.body["more"]), (200, &end, &json!(false)));
}

#[tokio::test]
async fn one_entry_is_found_by_number_and_by_id() {
    let fleet = Fleet::new().await;
    let [one, two] = fleet.two_feeds().await;
    let by_id = fleet.get(&format!("/api/v1/entries/lookup?feed={one}&id=2&html=sanitised")).await;
    assert_eq!((by_id.status, &by_id.body["id"], &by_id.body["feed_id"]), (200, &json!("2"), &json!(one)));
    let by_url = fleet.get("/api/v1/entries/lookup?feed=https://b.example/feed.xml&id=3").await;
    assert_eq!((by_url.status, &by_url.body["feed_id"]), (200, &json!(two)));
    let by_seq = fleet.get(&format!("/api/v1/entries/{}", by_url.body["seq"])).await;
    assert_eq!(by_seq.body, by_url.body);
    for (path, status) in [
        ("/api/v1/entries/1000000", 404),
        ("/api/v1/entries/first", 400),
        (format!("/api/v1/entries/lookup?feed={two}&id=2").as_str(), 404),
        (format!("/api/v1/entries/lookup?feed={two}").as_str(), 400),
    ] {
        assert_eq!(fleet.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn many_lines_set_labels_one_after_the_other() {
    let fleet = Fleet::new().await;
    let known = fleet.feed("https://a.example/known").await;
    let lines = [
        json!({ "url": "https://a.example/new", "add_labels": ["one"], "title": "mine", "external_id": "x" }),
        json!({ "url": "https://a.example/new", "add_labels": ["two"] }),
        json!({ "id": known, "labels": ["a", "b"] }),
        json!({ "id": known, "remove_labels": ["a"], "add_labels": ["c"] }),
        json!({ "id": known, "add_labels": ["c"] }),
        json!({ "id": known, "title": "another" }),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let request = Request::post("/api/v1/feeds/bulk").header(header::HOST, "127.0.0.1");
    let request = request.header(header::CONTENT_TYPE, "application/x-ndjson").body(Body::from(body)).unwrap();
    let answer = fleet.send(request).await;
    let answers: Vec<Value> =
        answer.body.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changed: Vec<bool> = answers.iter().map(|answer| answer["changed"] == true).collect();
    assert_eq!(changed, [false, true, true, true, false, false]);
    assert!(answers[5]["error"].as_str().unwrap().contains("title"));
    let new = fleet.get("/api/v1/feeds/lookup?url=https://a.example/new").await.body;
    assert_eq!(
        (&new["labels"], &new["title"], &new["external_id"]),
        (&json!(["one", "two"]), &json!("mine"), &json!("x"))
    );
    assert_eq!(fleet.get(&format!("/api/v1/feeds/{known}")).await.body["labels"], json!(["b", "c"]));
}
