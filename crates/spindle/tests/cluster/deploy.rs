//! What is in deploy/cluster: it fits together, and a cluster made of it works, with the permissions that
//! it gives and no others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use serde_json::Value;
use spindle_testkit::{Program, SpindleServer, free_address, nats_program, succeeds, wait_until};
use tempfile::TempDir;

use crate::harness::{SPINDLE, ask, database, refused};

/// A new cluster of NATS that is not well after this is given up for another one.
const WELL_WITHIN: Duration = Duration::from_secs(20);
const MACHINES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/cluster")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Certificates, passwords and tokens, made as the page says, for this address instead of machines.
fn secrets() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let page = read("README.md");
    let script = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let names = "DNS:node-1,DNS:node-2,DNS:node-3";
    assert!(script.contains(names), "{script}");
    let script = script.replace(names, "IP:127.0.0.1");
    let program = Path::new(SPINDLE).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-euc", &script]).current_dir(folder.path()).env("PATH", path);
    succeeds(&mut shell);
    folder
}

/// What this file says, with the folder of secrets in the place of the folders of machines.
fn at_home(name: &str, secrets: &TempDir) -> String {
    let folder = format!("{}/", secrets.path().display());
    read(name).replace("/etc/nats/", &folder).replace("/etc/spindle/", &folder)
}

/// `nats-server` with this configuration, as the machine of this name.
fn nats(config: &Path, machine: &str) -> Command {
    let mut command = Command::new(nats_program());
    command.arg("--config").arg(config).env("NATS_NAME", machine);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Everything that listens on a machine.
struct Machine {
    clients: String,
    monitoring: String,
    routes: String,
    http: String,
    cluster: String,
}

/// The servers of NATS, and the addresses of all.
struct Machines {
    machines: Vec<Machine>,
    _servers: Vec<Program>,
    _stores: TempDir,
}

impl Machines {
    fn start(secrets: &TempDir) -> Machines {
        for _ in 0..4 {
            if let Some(machines) = Machines::try_start(secrets) {
                return machines;
            }
        }
        panic!("no servers of NATS become well");
    }

    fn try_start(secrets: &TempDir) -> Option<Machines> {
        let address = |_| {
            let [clients, monitoring, routes, http, cluster] = [(); 5].map(|()| free_address());
            Machine { clients, monitoring, routes, http, cluster }
        };
        let (machines, stores) =
            (MACHINES.map(address).into_iter().collect::<Vec<_>>(), tempfile::tempdir().unwrap());
        let mut servers = Vec::new();
        for (machine, name) in machines.iter().zip(MACHINES) {
            let store = stores.path().join(name).display().to_string();
            let mut text = at_home("nats-server.conf", secrets);
            let stranger = "users: [\n{ user: stranger, password: unknown, permissions { \
                            publish: [\"other.>\"], subscribe: [\"_INBOX.>\"] } }";
            for (printed, here) in [
                ("0.0.0.0:4222", &*machine.clients),
                ("0.0.0.0:8222", &machine.monitoring),
                ("0.0.0.0:6222", &machine.routes),
                ("/var/lib/nats", &store),
                ("users: [", stranger),
            ] {
                assert!(text.contains(printed), "{printed} is not in it: {text}");
                text = text.replace(printed, here);
            }
            for (other, name) in machines.iter().zip(MACHINES) {
                text = text.replace(&format!("{name}:6222"), &other.routes);
            }
            let config = secrets.path().join(format!("{name}.conf"));
            fs::write(&config, text).unwrap();
            succeeds(nats(&config, name).arg("-t").stdout(Stdio::piped()));
            servers.push(Program::start(&mut nats(&config, name)));
        }
        let is_well = |machine: &Machine| {
            ask(&machine.monitoring, "GET /healthz", &Value::Null)
                .is_some_and(|(status, _)| status == 200)
        };
        let deadline = Instant::now() + WELL_WITHIN;
        while !machines.iter().all(is_well) {
            if Instant::now() > deadline {
                return None;
            }
            park_timeout(Duration::from_millis(20));
        }
        Some(Machines { machines, _servers: servers, _stores: stores })
    }

    /// The settings of a node, with the addresses that the machines have here.
    fn settings(&self, number: usize, secrets: &TempDir) -> (String, PathBuf) {
        let mut text = at_home("spindle.toml", secrets);
        for (machine, name) in self.machines.iter().zip(MACHINES) {
            for (port, here) in [("4222", &machine.clients), ("8222", &machine.monitoring)] {
                text = text.replace(&format!("{name}:{port}"), here);
            }
        }
        let machine = &self.machines[number];
        let data = secrets.path().join(format!("data-{number}"));
        text = text
            .replace("/var/lib/spindle", &data.display().to_string())
            .replace("0.0.0.0:9931", &machine.cluster)
            .replace("0.0.0.0:7420", &machine.http);
        let file = secrets.path().join(format!("spindle-{number}.toml"));
        fs::write(&file, &text).unwrap();
        (text, file)
    }
}

/// A command of the program, asked of this node as the page says.
fn command(machine: &Machine, secrets: &TempDir, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(SPINDLE);
    command.args(arguments).current_dir(secrets.path());
    command.env("SPINDLE_URL", format!("https://{}", machine.http));
    command.env("SPINDLE_CA_FILE", "ca.pem").env("SPINDLE_TOKEN_FILE", "admin.token");
    let output = command.output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_cluster_made_of_the_files_works_and_only_with_their_permissions() {
    let secrets = secrets();
    let machines = Machines::start(&secrets);
    let mut nodes = Vec::new();
    for (number, name) in MACHINES.iter().enumerate() {
        let (_, file) = machines.settings(number, &secrets);
        let advertised = &machines.machines[number].cluster;
        let named = ["--node", name, "--advertise", advertised];
        let arguments = [&["--config", file.to_str().unwrap()], &named[..]].concat();
        nodes.push(SpindleServer::start(SPINDLE, &arguments, "http"));
    }
    let [first, second, _] = &machines.machines[..] else { panic!() };
    wait_until("one leads, and two follow", || {
        command(first, &secrets, &["cluster"]).is_some_and(|nodes| {
            nodes.matches("leader").count() == 1 && nodes.matches("follower").count() == 2
        })
    });
    command(first, &secrets, &["add", "mail", "{\"to\": \"a@example.org\"}"]).unwrap();
    assert!(command(second, &secrets, &["jobs"]).unwrap().contains("mail"));

    let refuses = |user: &str, password: &str, words: &[&str]| {
        let (text, file) = machines.settings(0, &secrets);
        let passwords = secrets.path().join("other-password");
        // As closed as the right one.
        fs::copy(secrets.path().join("log-password"), &passwords).unwrap();
        fs::write(&passwords, password).unwrap();
        let text = text
            .replace("tls://spindle@", &format!("tls://{user}@"))
            .replace("/log-password\"", "/other-password\"")
            .replace(&machines.machines[0].http, "127.0.0.1:0")
            .replace(&machines.machines[0].cluster, "127.0.0.1:0");
        fs::write(&file, text).unwrap();
        let (code, said) = refused(&["--config", file.to_str().unwrap(), "--node", "other"]);
        assert_eq!(code, Some(1), "{said}");
        for word in words {
            assert!(said.contains(word), "{word} is not said: {said}");
        }
    };
    refuses("spindle", "another", &["cannot open the shared log", "refuses this login"]);
    let refused = "Permissions Violation for Publish to \"$JS.API.";
    refuses("stranger", "unknown", &["cannot open the shared log", refused]);
}

/// The settings that are in force with a settings file, which the program has to accept.
#[track_caller]
fn in_force(text: &str) -> impl Fn(&str) -> String + use<> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let mut command = Command::new(SPINDLE);
    command.args(["config", "--json", "--config"]).arg(file.path());
    // Each machine sets that in its own drop-in.
    command.args(["--advertise", "node-1:9931"]);
    let said = succeeds(&mut command);
    let settings: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    move |name| {
        let found = settings.iter().find(|setting| setting["name"] == name);
        found.unwrap()["value"].as_str().unwrap_or_default().to_owned()
    }
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

#[test]
fn the_addresses_of_the_files_agree_with_each_other() {
    let (nats, page) = (read("nats-server.conf"), read("README.md"));
    let value = |name: &str| {
        let line = nats.lines().map(str::trim).find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}")).trim().trim_matches('"').to_owned()
    };
    let (clients, monitoring) = (value("listen:"), value("http:"));
    let all = |form: &dyn Fn(&str) -> String| MACHINES.map(form).join(",");
    let setting = in_force(&read("spindle.toml"));
    let url = setting("log");
    let hosts = all(&|name| format!("{name}:{}", port(&clients)));
    let asked = all(&|name| format!("http://{name}:{}", port(&monitoring)));
    assert_eq!(url, format!("tls://spindle@{hosts}/jobs?monitoring={asked}"));
    let routes = "0.0.0.0:6222";
    assert!(nats.contains(&format!("listen: \"{routes}\"")), "{nats}");
    let routes = MACHINES.map(|name| format!("\"tls://{name}:{}\"", port(routes))).join(", ");
    assert!(nats.contains(&format!("routes: [{routes}]")), "{nats}");
    assert_eq!(value("sync_interval:"), "always");
    let names = MACHINES.map(|name| format!("DNS:{name}")).join(",");
    assert!(page.contains(&names) && page.contains(&MACHINES.join(" ")), "{page}");

    let units = read("spindle.service.d.conf");
    let advertised = format!("SPINDLE_SERVE_ADVERTISE=%H:{}", port(&setting("cluster-listen")));
    assert!(units.contains(&advertised), "{units}");
    for address in [&setting("http"), &setting("cluster-listen"), &clients, &monitoring] {
        let row = format!("\n| {} | ", port(address));
        assert!(page.contains(&row), "{row}");
    }
    assert!(page.contains("\n| 6222 | "));

    // The page about clusters names the same permissions.
    let cluster = fs::read_to_string(folder().join("../../docs/cluster.md")).unwrap();
    let words = "The user may publish to `jobs.>` and `$JS.API.>`, and subscribe to `jobs.>` and `_INBOX.>`.";
    assert!(cluster.replace('\n', " ").contains(words));
    assert_eq!(value("publish:"), "[\"jobs.>\", \"$JS.API.>\"]");
    assert_eq!(value("subscribe:"), "[\"jobs.>\", \"_INBOX.>\"]");
}

#[test]
fn a_node_on_postgresql_differs_by_its_url_alone() {
    let (nats, postgres) = (read("spindle.toml"), read("spindle-postgres.toml"));
    let settings = |text: &str| -> Vec<String> {
        let is_setting = |line: &&str| !line.starts_with('#') && !line.starts_with("log = ");
        text.lines().filter(is_setting).map(str::to_owned).collect()
    };
    assert_eq!(settings(&nats), settings(&postgres));
    let url = in_force(&postgres)("log");
    assert_eq!(url, "postgres://spindle@db-1:5432,db-2:5432/spindle?sslmode=verify-full");
}

#[test]
fn the_statements_for_postgresql_make_a_log_that_waits_for_its_standby() {
    let server = database();
    server.sql("CREATE ROLE admin SUPERUSER LOGIN");
    server.sql_as("admin", "ALTER ROLE spindle RENAME TO former");
    // As psql would put the password in.
    let script = read("postgres.sql").replace(":'password'", "'secret'");
    let lines = script.lines().filter(|line| !line.starts_with("--"));
    let script = lines.collect::<Vec<_>>().join(" ");
    for statement in script.split_inclusive(';').map(str::trim).filter(|it| !it.is_empty()) {
        server.sql_as("admin", statement);
    }
    let setting = |name: &str| server.sql_as("admin", &format!("SHOW {name}"));
    wait_until("the settings are in force", || setting("synchronous_standby_names") == "standby_1");
    let owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'spindle'";
    assert_eq!(server.sql_as("admin", owner), "spindle");
    // The page must have the line that admits this user.
    let page = read("README.md");
    assert!(page.contains("hostssl spindle spindle "), "{page}");
}

#[test]
fn the_example_for_kubernetes_has_three_nodes_that_reach_each_other() {
    const PROGRAM: &str = "import json, sys, yaml\n\
                           print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let mut python = Command::new("python3");
    let said = succeeds(python.args(["-c", PROGRAM]).arg(folder().join("kubernetes.yaml")));
    let documents: Vec<Value> = serde_json::from_str(&said).unwrap();
    let named = |kind: &str, name: &str| {
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
        documents.iter().find(is_it).unwrap_or_else(|| panic!("{kind} {name}"))
    };
    let set = &named("StatefulSet", "spindle")["spec"];
    assert_eq!((&set["replicas"], &set["podManagementPolicy"]), (&3.into(), &"Parallel".into()));
    let labels = &set["template"]["metadata"]["labels"];
    assert_eq!(&set["selector"]["matchLabels"], labels);
    for service in ["spindle", set["serviceName"].as_str().unwrap()] {
        assert_eq!(&named("Service", service)["spec"]["selector"], labels);
    }
    let container = &set["template"]["spec"]["containers"][0];
    let settings =
        in_force(named("ConfigMap", "spindle")["data"]["spindle.toml"].as_str().unwrap());
    let ports = container["ports"].as_array().unwrap();
    for (name, setting) in [("http", "http"), ("cluster", "cluster-listen")] {
        let is_it = |it: &&Value| it["name"] == name;
        let found = &ports.iter().find(is_it).unwrap()["containerPort"];
        assert_eq!(found.to_string(), port(&settings(setting)));
    }
    let advertised = format!(
        "--advertise=$(POD_NAME).{}:{}",
        set["serviceName"].as_str().unwrap(),
        port(&settings("cluster-listen"))
    );
    let arguments = container["args"].as_array().unwrap();
    assert!(arguments.contains(&advertised.into()), "{arguments:?}");
    let volumes = set["template"]["spec"]["volumes"].as_array().unwrap();
    for secret in volumes.iter().filter_map(|volume| volume["secret"]["secretName"].as_str()) {
        named("Secret", secret);
    }
    let mounts = container["volumeMounts"].as_array().unwrap();
    for name in [
        "data",
        "log-password-file",
        "log-ca-file",
        "cluster-ca-file",
        "tls-cert",
        "tls-key",
        "tokens",
    ] {
        let path = settings(name);
        let is_there = mounts.iter().any(|it| path.starts_with(it["mountPath"].as_str().unwrap()));
        assert!(is_there, "{name}: {path}");
    }
}

#[test]
fn systemd_understands_the_drop_ins() {
    let units = tempfile::tempdir().unwrap();
    for (unit, drop_in) in
        [("nats-server", "nats-server.service.d.conf"), ("spindle", "spindle.service.d.conf")]
    {
        let path = units.path().join(format!("{unit}.service"));
        fs::write(&path, "[Service]\nExecStart=/bin/true\n").unwrap();
        let folder = units.path().join(format!("{unit}.service.d"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("it.conf"), read(drop_in)).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path);
        let said = succeeds(&mut verify);
        let own: Vec<&str> = said.lines().filter(|line| line.contains("it.conf")).collect();
        assert_eq!(own, [] as [&str; 0], "{drop_in}");
    }
}
