//! The dashboard and the alert rules in a real Prometheus, which scrapes a server under load.
//!
//! Grafana itself is not used: neither Debian nor PyPI nor npm has its server. The test asks Prometheus what the dashboard
//! would ask, with the variables filled in.

use tokio::process::Command;

use super::*;
use crate::program::load::generator_path;

const DASHBOARD: &str = "grafana/voxbridge.json";
const ALERTS: &str = "prometheus/alerts.yaml";
const ALERT_TESTS: &str = "prometheus/alerts_test.yaml";
/// Time for all series: a rate needs two scrapes after the first event, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(150);

/// Installs Prometheus, or fails with what is missing.
fn ensure_prometheus() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let check = "command -v prometheus && command -v promtool";
    ensure(check, "prometheus", "install Prometheus with promtool").unwrap();
}

fn promtool(args: &[&str]) -> String {
    let done = std::process::Command::new("promtool").args(args).current_dir(example("prometheus")).output();
    let done = done.unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "promtool {args:?}:\n{out}\n{err}");
    out.into_owned()
}

/// Names of all alerts of the rules.
fn alert_names() -> Vec<String> {
    let rules = read(ALERTS);
    rules.lines().filter_map(|line| Some(line.trim().strip_prefix("- alert: ")?.to_owned())).collect()
}

#[test]
fn every_alert_has_a_test_that_fires_and_one_that_stays_silent() {
    let tests = read(ALERT_TESTS);
    for name in alert_names() {
        let expectations: Vec<_> = tests.split(&format!("alertname: {name}\n")).skip(1).collect();
        let is_silent =
            |rest: &&str| rest.lines().next().is_some_and(|line| line.ends_with("exp_alerts: []"));
        let silent = expectations.iter().filter(|rest| is_silent(rest)).count();
        assert!(silent > 0 && silent < expectations.len(), "{name}: {silent} of {}", expectations.len());
    }
}

#[test]
#[ignore = "needs root on Debian, and installs prometheus"]
fn alerts_fire_and_stay_silent() {
    ensure_prometheus();
    promtool(&["check", "rules", "alerts.yaml"]);
    assert!(promtool(&["test", "rules", "alerts_test.yaml"]).contains("SUCCESS"));
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

#[test]
fn dashboard_panels_have_own_ids_and_places() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + width <= 24, "{title} is beyond the 24 columns");
        for (column, row) in (x..x + width).flat_map(|column| (y..y + height).map(move |row| (column, row))) {
            assert!(cells.insert((column, row)), "{title} covers another panel");
        }
    }
}

/// An expression that must have values, and where it stands.
struct Query {
    place: String,
    expression: String,
    /// Labels that every series must have.
    labels: Vec<String>,
}

/// All expressions of the dashboard's panels, as Grafana asks them.
fn panel_queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in dashboard()["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().unwrap();
            let labels = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap().to_owned());
            let labels: Vec<_> = labels.collect();
            // "All", and chosen values.
            for (protocol, profile) in [(".*", ".*"), ("(macaw|vosk)", "(speech|conversation)")] {
                let expression = target["expr"].as_str().unwrap().replace("$protocol", protocol);
                let expression = expression.replace("$profile", profile).replace("$__rate_interval", "1m");
                assert!(!expression.contains('$'), "unknown variable: {expression}");
                let place = panel["title"].as_str().unwrap().to_owned();
                queries.push(Query { place, expression, labels: labels.clone() });
            }
        }
    }
    queries
}

/// Queries of the dashboard's variables: `label_values(METRIC, LABEL)`.
fn variable_queries() -> Vec<Query> {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let queries = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
    let parsed = queries.map(|query| {
        let arguments = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (metric, label) = arguments.split_once(", ").unwrap();
        Query { place: "variable".to_owned(), expression: metric.to_owned(), labels: vec![label.to_owned()] }
    });
    parsed.collect()
}

/// Expressions that an alert compares with a threshold.
fn alert_queries() -> Vec<Query> {
    let rules = read(ALERTS);
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let compared = expressions.map(|expression| {
        let (compared, _) =
            [" > ", " < ", " == "].iter().find_map(|sign| expression.split_once(sign)).unwrap();
        Query { place: "alert".to_owned(), expression: compared.to_owned(), labels: Vec::new() }
    });
    compared.collect()
}

/// A Prometheus that scrapes these servers every second.
struct Prometheus {
    address: String,
    process: Child,
}

impl Prometheus {
    async fn start(dir: &Path, admins: &[String]) -> Self {
        let rules = example(ALERTS);
        let settings = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "voxbridge", "static_configs": [{"targets": admins}]}],
        });
        let file = dir.join("prometheus.yml");
        fs::write(&file, settings.to_string()).unwrap();
        let address = free_address().await;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("prometheus.log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut prometheus = Self { address, process };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&prometheus.address).await.is_err() {
            let log = fs::read_to_string(dir.join("prometheus.log")).unwrap();
            assert!(prometheus.process.try_wait().unwrap().is_none() && Instant::now() < deadline, "{log}");
            sleep(Duration::from_millis(100)).await;
        }
        prometheus
    }

    async fn get(&self, path: &str) -> Value {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let answer = send_request(stream, &format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n")).await;
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// True if the expression has a number to show now. A quantile of nothing is not a number.
    async fn has_values(&self, Query { place, expression, labels }: &Query) -> bool {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", expression).finish();
        let data = self.get(&format!("query?{query}")).await;
        let series = data["result"].as_array().unwrap();
        for label in labels {
            let is_labelled = series.iter().all(|series| series["metric"][label].is_string());
            assert!(is_labelled, "{place}: {expression} has no label {label}");
        }
        let value = |series: &Value| series["value"][1].as_str().unwrap().parse::<f64>().unwrap();
        series.iter().any(|series| value(series).is_finite())
    }

    async fn without_values(&self, queries: &[Query]) -> Vec<String> {
        let mut missing = Vec::new();
        for query in queries {
            if !self.has_values(query).await {
                missing.push(format!("{}: {}", query.place, query.expression));
            }
        }
        missing
    }
}

async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

const ROUTES: &str = r#"
# A dead collector, so that something is lost.
[otlp]
url = "http://127.0.0.1:9"
[[upstream]]
name = "simulator"
url = "ws://SIMULATOR/v1/realtime"
[[upstream]]
name = "generator"
url = "ws://GENERATOR/v1/realtime"
[[upstream]]
name = "broken"
url = "ws://127.0.0.1:9/v1/realtime"
[[route]]
model = "load"
upstream = "generator"
profile = "conversation"
[[route]]
model = "broken"
upstream = "broken"
profile = "speech"
[[route]]
model = "talk"
upstream = "simulator"
profile = "conversation"
[[route]]
model = "*"
upstream = "simulator"
profile = "speech"
"#;

async fn start_server(args: &[&str]) -> Server {
    let addresses = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
    Server::spawn(voxbridge(&[&addresses, args].concat())).await
}

/// A server with a certificate, whose expiry is a metric.
async fn start_secure_server(dir: &Path) -> Server {
    let (certificate, key) = self_signed("localhost");
    let [certificate, key] = [("tls.pem", certificate), ("tls.key", key)].map(|(name, pem)| {
        fs::write(dir.join(name), pem).unwrap();
        dir.join(name).display().to_string()
    });
    let upstream = ["--upstream", "ws://127.0.0.1:9/v1/realtime"];
    start_server(&[&upstream[..], &["--tls-cert", &certificate, "--tls-key", &key]].concat()).await
}

/// The load generator as clients of the server, and as the upstream at this address.
fn start_generator(server: &Server, upstream: &str) -> Child {
    Command::new(generator_path())
        .args(["--sessions", "4", "--rate", "16000", "--speech", "0.1", "--seconds", "300"])
        .args(["--url", &server.address.to_string(), "--upstream-listen", upstream])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn connect(server: &Server, query: &str) -> Client {
    let mut client = dial(server.address, &format!("/v1/realtime?{query}")).await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

/// A client that is transcribed, lets a text be spoken, makes a mistake and closes.
async fn transcribe_and_speak(server: &Server) {
    let mut client = connect(server, "model=speech").await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    client.send_json(json!({"type": "tts.speak", "text": "Good morning."})).await;
    client.wait_for_event("tts.speaking_start").await;
    client.send_audio(&[0; 6_400], 640).await;
    client.wait_for_event("tts.speaking_end").await;
    client.send_json(json!({"type": "nonsense"})).await;
    client.wait_for_event("error").await;
    client.close().await;
}

/// A client that talks, interrupts the answer and is moved to another upstream session.
async fn talk_and_interrupt(server: &Server) {
    let has_kind = |kind: &'static str| move |frame: &ClientFrame| frame.kind() == kind;
    let mut client = connect(server, "model=talk&rollover_events=true").await;
    let id = events(&client.received, "session.created")[0]["session_id"].as_str().unwrap().to_owned();
    for end in ["tts.speaking_start", "tts.speaking_end"] {
        client.stream_until(&recording("goforward"), has_kind(end)).await;
    }
    assert_eq!(server.request("POST", &format!("/sessions/{id}/rollover")).await.status, 202);
    client.stream_until(&[], has_kind("session.rollover")).await;
    client.close().await;
}

/// A client of an upstream that cannot be reached.
async fn ask_broken_upstream(server: &Server) {
    let mut client = connect(server, "model=broken").await;
    client.send_json(json!({"type": "tts.speak", "text": "Good morning."})).await;
    client.wait_for_event("error").await;
    client.send(Message::Close(None)).await;
    client.read_to_end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root on Debian, and installs prometheus"]
async fn dashboard_and_alerts_have_values_under_load() {
    tokio::task::spawn_blocking(ensure_prometheus).await.unwrap();
    let dir = scratch("monitoring");
    let simulator = SimulatorConfig { workers: 8, record: false, ..instant_simulator() };
    let (simulator, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let generator = free_address().await;
    let routes = ROUTES.replace("SIMULATOR", &simulator.to_string()).replace("GENERATOR", &generator);
    let server = start_server(&["--config", &config(&dir, &routes)]).await;
    let secure = start_secure_server(&dir).await;
    let prometheus = Prometheus::start(&dir, &[server.admin.to_string(), secure.admin.to_string()]).await;
    let mut load = start_generator(&server, &generator);

    let mut queries: Vec<_> =
        [panel_queries(), variable_queries(), alert_queries()].into_iter().flatten().collect();
    // This load has no calls by WebRTC, no end-of-turn model, and no early questions.
    let others = ["voxbridge_call_", "voxbridge_turn_", "voxbridge_early_"];
    queries.retain(|query| !others.iter().any(|prefix| query.expression.contains(prefix)));
    let deadline = Instant::now() + PATIENCE;
    loop {
        tokio::join!(
            transcribe_and_speak(&server),
            talk_and_interrupt(&server),
            ask_broken_upstream(&server)
        );
        let missing = prometheus.without_values(&queries).await;
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "nothing to show:\n{}", missing.join("\n"));
    }
    println!("{} expressions have values", queries.len());
    assert!(load.try_wait().unwrap().is_none(), "the load generator ended");
    let rules = prometheus.get("rules").await;
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let names: Vec<_> = rules.iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(names, alert_names());
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:#?}");
}
