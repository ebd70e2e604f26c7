//! The API's own description. What is written by hand (paths, parameters, bodies of requests) is in a file beside the code,
//! the schemas of answers are derived from their types, and some bodies of requests from other schemas. The tests keep description and code consistent: every path that
//! is served is described, every described operation is called, and every answer has the shape that is described.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use scheduler::delivery::view::SubscriptionView;
use scheduler::push::check::PushCheck;
use scheduler::wire::{
    AddedView, BulkView, ConfigView, EntryList, EventList, ExplainView, FeedView, HostView, List, ReloadView,
    RequeuedView, StatsView,
};
use schemars::Schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use serde_json::{Map, Value};
use store::{HistoryEntry, Requeue};

use crate::state::{Api, State};

/// What is written by hand.
const WRITTEN: &str = include_str!("openapi.json");

/// Where its schemas begin.
const SCHEMAS: &str = "\"schemas\": {";

/// The whole document.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let further = derived().into_iter().chain(variants());
    let further: String = further.map(|(name, schema)| format!("\n      \"{name}\": {schema},")).collect();
    WRITTEN.replacen(SCHEMAS, &format!("{SCHEMAS}{further}"), 1)
});

/// The address that the document names for every fleet: where it was read.
const ANY_SERVER: &str = "{\"url\": \"/\"}";

/// `GET /openapi.json`, which names the address that `api.public_url` gives.
pub(super) async fn document(State(api): State<Api>) -> ([(HeaderName, &'static str); 1], String) {
    let document = match api.ops.config.api.public_url.trim_end_matches('/') {
        "" => DOCUMENT.clone(),
        public => DOCUMENT.replacen(ANY_SERVER, &serde_json::json!({ "url": public }).to_string(), 1),
    };
    ([(header::CONTENT_TYPE, "application/json")], document)
}

/// Returns what is written by hand.
pub(super) fn written() -> Value {
    serde_json::from_str(WRITTEN).unwrap_or_default()
}

/// Returns the schemas of answers, by their names.
fn derived() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.with_transform(RecursiveTransform(describe)).into_generator();
    let answers = [
        SchemaGenerator::subschema_for::<AddedView>,
        SchemaGenerator::subschema_for::<BulkView>,
        SchemaGenerator::subschema_for::<ConfigView>,
        SchemaGenerator::subschema_for::<EntryList>,
        SchemaGenerator::subschema_for::<EventList>,
        SchemaGenerator::subschema_for::<ExplainView>,
        SchemaGenerator::subschema_for::<List<FeedView>>,
        SchemaGenerator::subschema_for::<List<HistoryEntry>>,
        SchemaGenerator::subschema_for::<List<HostView>>,
        SchemaGenerator::subschema_for::<List<SubscriptionView>>,
        SchemaGenerator::subschema_for::<PushCheck>,
        SchemaGenerator::subschema_for::<ReloadView>,
        SchemaGenerator::subschema_for::<Requeue>,
        SchemaGenerator::subschema_for::<RequeuedView>,
        SchemaGenerator::subschema_for::<StatsView>,
    ];
    for answer in answers {
        answer(&mut generator);
    }
    generator.take_definitions(true)
}

/// Returns the schemas of requests that differ in a few fields from others that are written, by their names.
fn variants() -> [(String, Value); 3] {
    let written = written();
    let schemas = &written["components"]["schemas"];
    let feed_with = |description: &str, left_out: &[&str]| {
        let mut schema = without(&schemas["NewFeed"], left_out);
        schema["description"] = description.into();
        schema["required"] = Value::Array(Vec::new());
        schema
    };
    let mut line = feed_with("Either url or id, and what is to be set.", &[]);
    line["properties"]["id"] = serde_json::json!({ "type": "integer", "description": "A known feed's id." });
    [
        ("FeedFields".to_owned(), feed_with("What is not given stays as it is.", &["url", "title"])),
        ("FeedLine".to_owned(), line),
        ("NewHostRule".to_owned(), without(&schemas["HostRule"], &["source"])),
    ]
}

/// Returns a schema without some of its fields.
fn without(schema: &Value, left_out: &[&str]) -> Value {
    let mut schema = schema.clone();
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.retain(|name, _| !left_out.contains(&name.as_str()));
    }
    schema
}

/// Makes a schema describe what is answered: no other fields than its own, absent fields instead of null ones, no
/// defaults, and numbers as JSON knows them.
fn describe(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    schema.remove("default");
    match schema.get("format").and_then(Value::as_str) {
        None | Some("date-time") => {}
        Some("uint8" | "uint16") => schema.retain(|name, _| name != "format" && name != "maximum"),
        Some(_) => _ = schema.remove("format"),
    }
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(Value::Object(fields)) = schema.get_mut("properties") else { return };
    for (name, field) in fields.iter_mut() {
        if let Value::Object(field) = field
            && !required.contains(&Value::from(name.as_str()))
        {
            without_null(field);
        }
    }
    schema.insert("additionalProperties".to_owned(), false.into());
}

/// Removes null from what a field may be.
fn without_null(field: &mut Map<String, Value>) {
    for name in ["type", "enum", "anyOf"] {
        if let Some(Value::Array(choices)) = field.get_mut(name) {
            choices.retain(|choice| *choice != Value::Null && *choice != "null" && choice["type"] != "null");
        }
    }
    if let Some(Value::Array(types)) = field.get("type")
        && let [one] = &types[..]
    {
        let one = one.clone();
        field.insert("type".to_owned(), one);
    }
    if let Some(Value::Array(choices)) = field.get("anyOf")
        && let [Value::Object(one)] = &choices[..]
    {
        let one = one.clone();
        field.remove("anyOf");
        field.extend(one);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{DOCUMENT, WRITTEN, derived, variants};
    use crate::api::{PREFIX, outer, versioned};
    use crate::testing::Fleet;

    /// Returns every (method, path) that is served: the router knows its paths, and answers with the methods of each.
    async fn served(fleet: &Fleet) -> BTreeSet<(String, String)> {
        let nested = versioned().paths.into_iter().map(|path| format!("{PREFIX}{path}"));
        let others = outer().paths.into_iter().chain(["/".to_owned()]);
        let mut found = BTreeSet::new();
        for path in nested.chain(others) {
            let target = path.replace("{id}", "1").replace("{host}", "example.com").replace("{seq}", "1");
            for method in fleet.methods_of(&target).await {
                found.insert((method.to_lowercase(), path.clone()));
            }
        }
        found
    }

    pub(in crate::api) fn document() -> Value {
        serde_json::from_str(&DOCUMENT).unwrap()
    }

    /// Returns every described operation, changes after reads, erasures last.
    pub(in crate::api) fn described(document: &Value) -> Vec<(String, String, Value)> {
        let paths = document["paths"].as_object().unwrap();
        let of_path = |(path, item): (&String, &Value)| {
            let operations = item.as_object().unwrap().clone();
            operations.into_iter().map(|(method, operation)| (method, path.clone(), operation)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = paths.iter().flat_map(of_path).collect();
        all.sort_by_key(|(method, ..)| match method.as_str() {
            "get" => 0,
            "delete" => 2,
            _ => 1,
        });
        all
    }

    #[tokio::test]
    async fn what_is_served_is_described_and_nothing_else() {
        let document = document();
        let described: BTreeSet<_> = described(&document).into_iter().map(|(method, path, _)| (method, path)).collect();
        assert_eq!(described, served(&Fleet::new().await).await);
    }

    #[tokio::test]
    async fn every_described_operation_answers_as_described() {
        let fleet = Fleet::with(|config| {
            config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
            config.api.public_url = "https://fleet.example".into();
            config.delivery.hub = common::config::HubAccess::Open;
        })
        .await;
        let id = fleet.feed("https://example.com/feed.xml").await;
        fleet.polled(id, &["1", "2"]).await;
        let requeue = fleet.post("/api/v1/requeue", json!({ "filter": { "all": true } })).await;
        assert_eq!(requeue.body["id"], id, "both are the first");
        let wish = json!({ "kind": "webhook", "target": "https://example.com/hook" });
        let subscription = fleet.post("/api/v1/subscriptions", wish).await;
        assert_eq!(subscription.body["id"], id, "all are the first: {}", subscription.body);
        let document = document();
        // A stream does not end, and callbacks need a subscription: they have their own tests.
        let is_left_out = |path: &str| path.ends_with("/stream") || path.ends_with("/{token}");
        let operations = described(&document).into_iter().filter(|(_, path, _)| !is_left_out(path));
        for (method, path, operation) in operations {
            let target = target(&path, &operation, id);
            if path.contains("/feeds/{id}") {
                fleet.ask("POST", &format!("/api/v1/feeds/{id}/resume"), None).await;
            }
            if path.ends_with("/unmove") {
                fleet.moved(id, "https://example.org/feed.xml").await;
            }
            if path.ends_with("/backfill") {
                let mut document = common::document::Document::default();
                document.onward.next = Some("https://example.com/feed.xml?paged=2".into());
                fleet.read(id, document).await;
            }
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            let body = (!body.is_null()).then(|| body.clone());
            let form = &operation["requestBody"]["content"]["application/x-www-form-urlencoded"]["example"];
            let answer = match form.as_str() {
                Some(form) => {
                    let media_type = ("content-type", "application/x-www-form-urlencoded");
                    let (status, _, body) = fleet.call(&method.to_uppercase(), &target, &[media_type], form).await;
                    crate::testing::Answer { status, body: body.into() }
                }
                None => fleet.ask(&method.to_uppercase(), &target, body).await,
            };
            let response = &operation["responses"][answer.status.to_string()];
            assert!(
                response.is_object() && answer.status < 300,
                "{method} {target}: {} {}",
                answer.status,
                answer.body
            );
            let schema = &response["content"]["application/json"]["schema"];
            if !schema.is_null() {
                let wrong = mismatch(&document, schema, &answer.body, "answer");
                assert_eq!(wrong, None, "{method} {target} answers {}", answer.body);
            }
        }
    }

    /// A handler names the fields that it reads when it refuses another one.
    #[tokio::test]
    async fn bodies_of_requests_are_described_with_every_field_that_is_read_and_with_no_other() {
        let fleet = Fleet::new().await;
        let id = fleet.feed("https://example.com/feed.xml").await;
        let document = document();
        let mut compared = 0;
        for (method, path, operation) in described(&document) {
            let mut schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            if let Some(reference) = schema["$ref"].as_str() {
                schema = document.pointer(reference.trim_start_matches('#')).unwrap();
            }
            let body = json!({ "a field of no body": 1 });
            let answer = fleet.ask(&method.to_uppercase(), &target(&path, &operation, id), Some(body)).await;
            assert_eq!(answer.body["code"], "unknown_field", "{method} {path}: {}", answer.body);
            let refusal = answer.body["detail"].as_str().unwrap();
            let read = refusal.rsplit_once("; one of ").unwrap_or_else(|| panic!("{method} {path}: {refusal}")).1;
            let mut read: BTreeSet<&str> = read.split(", ").collect();
            if method == "patch" && path.ends_with("/feeds/{id}") {
                // They are read, to say that they cannot be changed.
                assert!(read.remove("url") && read.remove("title"));
            }
            let described: BTreeSet<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(described, read, "{method} {path}");
            compared += 1;
        }
        assert!(compared >= 10, "{compared} bodies");
    }

    #[test]
    fn examples_of_requests_have_the_shape_that_is_described() {
        let document = document();
        for (method, path, operation) in described(&document) {
            let contents = operation["requestBody"]["content"].as_object().cloned().unwrap_or_default();
            for (media_type, content) in contents {
                let lines: Vec<Value> = match (media_type.as_str(), &content["example"]) {
                    (_, Value::Null) => continue,
                    ("application/json", example) => vec![example.clone()],
                    ("application/x-ndjson", example) => {
                        let lines = example.as_str().unwrap().lines();
                        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
                    }
                    _ => continue,
                };
                for line in lines {
                    assert_eq!(mismatch(&document, &content["schema"], &line, "body"), None, "{method} {path}");
                }
            }
        }
    }

    #[tokio::test]
    async fn refusals_have_the_shape_of_an_error() {
        let fleet = Fleet::with(|config| {
            config.secrets.key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [7; 32]);
            config.api.pings_per_minute = 0;
        })
        .await;
        let document = document();
        let schema = json!({ "$ref": "#/components/schemas/Error" });
        let ahead = json!({ "kind": "webhook", "target": "https://example.com/hook", "after": 999_999 });
        for (method, path, body, status) in [
            ("GET", "/api/v1/feeds/99", None, 404),
            ("GET", "/api/v1/feeds?limit=0", None, 400),
            ("GET", "/api/v1/feeds/lookup", None, 400),
            ("GET", "/api/v1/entries?after=99", None, 410),
            ("POST", "/api/v1/subscriptions", Some(ahead), 410),
            ("POST", "/ping", Some(json!({ "url": "https://example.com/" })), 429),
            ("GET", "/nowhere", None, 404),
        ] {
            let answer = fleet.ask(method, path, body).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
            assert_eq!(mismatch(&document, &schema, &answer.body, "answer"), None, "{path}");
        }
    }

    #[test]
    fn every_operation_of_the_api_describes_its_other_refusals() {
        for (method, path, operation) in described(&document()) {
            let is_described = !path.starts_with(PREFIX) || operation["responses"]["default"].is_object();
            assert!(is_described, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn refusals_have_a_code_of_their_own_and_the_type_of_problems() {
        let fleet = Fleet::new().await;
        for (path, status, code) in [
            ("/api/v1/feeds/99", 404, "unknown_feed"),
            ("/api/v1/entries/99", 404, "unknown_entry"),
            ("/api/v1/feeds?limit=0", 400, "invalid_request"),
            ("/api/v1/feeds?limti=1", 400, "unknown_parameter"),
            ("/api/v1/entries?after=99", 410, "unknown_cursor"),
            ("/nowhere", 404, "unknown_path"),
        ] {
            let response = fleet.respond(path).await;
            assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
            let body = fleet.get(path).await.body;
            assert_eq!((&body["status"], &body["code"]), (&json!(status), &json!(code)), "{path}");
            assert_eq!(body["type"], format!("urn:feedfleet:problem:{code}"));
            assert_eq!(body["detail"], body["error"]);
        }
    }

    #[test]
    fn every_schema_is_written_or_derived_and_is_used() {
        let written: Value = serde_json::from_str(WRITTEN).unwrap();
        let written = written["components"]["schemas"].as_object().unwrap();
        let derived = derived();
        let variants = variants();
        let others = derived.keys().chain(variants.iter().map(|(name, _)| name));
        let mut known: Vec<&str> = written.keys().chain(others).map(String::as_str).collect();
        known.sort_unstable();
        let references = DOCUMENT.split("#/components/schemas/").skip(1);
        let used: BTreeSet<&str> = references.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(known, Vec::from_iter(used));
    }

    #[test]
    fn a_wrong_shape_is_noticed() {
        let document = document();
        let wrong = |value: Value| mismatch(&document, &json!({ "$ref": "#/components/schemas/Ready" }), &value, "it");
        assert_eq!(wrong(json!({ "ready": true })), None);
        assert_eq!(wrong(json!({})).as_deref(), Some("it.ready is missing"));
        assert_eq!(wrong(json!({ "ready": 1 })).as_deref(), Some("it.ready is 1, not \"boolean\""));
        assert_eq!(wrong(json!({ "ready": true, "x": 1 })).as_deref(), Some("it.x is not described"));
    }

    /// Returns the path of an operation of one feed, host or requeue.
    pub(in crate::api) fn target(path: &str, operation: &Value, id: i64) -> String {
        let path = path.replace("{id}", &id.to_string()).replace("{host}", "example.com").replace("{seq}", "2");
        format!("{path}{}", query(operation))
    }

    fn query(operation: &Value) -> String {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let given = parameters.iter().filter(|parameter| parameter["in"] == "query" && !parameter["example"].is_null());
        let pairs: Vec<String> = given
            .map(|parameter| {
                let value =
                    parameter["example"].as_str().map_or_else(|| parameter["example"].to_string(), str::to_owned);
                format!("{}={value}", parameter["name"].as_str().unwrap())
            })
            .collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    /// Returns where a value is not what its schema says, for as much of JSON Schema as the document uses.
    fn mismatch(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = document.pointer(reference.trim_start_matches('#'));
            return mismatch(document, target.unwrap_or_else(|| panic!("{reference} is nowhere")), value, at);
        }
        if schema.as_object().is_some_and(|said| said.keys().all(|name| name == "description")) {
            // Any JSON.
            return None;
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        };
        if !types.iter().any(|name| is_of_type(name.as_str().unwrap(), value)) {
            return Some(format!("{at} is {value}, not {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value)) {
            return Some(format!("{at} is {value}, not one of {}", schema["enum"]));
        }
        match value {
            Value::Object(fields) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let mut missing = required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
                let missing = missing.next().map(|name| format!("{at}.{name} is missing"));
                missing.or_else(|| {
                    fields.iter().find_map(|(name, value)| {
                        let at = format!("{at}.{name}");
                        match (schema["properties"].get(name), &schema["additionalProperties"]) {
                            (Some(schema), _) | (None, schema @ Value::Object(_)) => {
                                mismatch(document, schema, value, &at)
                            }
                            _ => Some(format!("{at} is not described")),
                        }
                    })
                })
            }
            Value::Array(items) => {
                let item = |(number, item)| mismatch(document, &schema["items"], item, &format!("{at}[{number}]"));
                items.iter().enumerate().find_map(item)
            }
            _ => None,
        }
    }

    fn is_of_type(name: &str, value: &Value) -> bool {
        match name {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{other} is not a type"),
        }
    }
}
