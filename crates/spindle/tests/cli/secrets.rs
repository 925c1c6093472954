//! Tokens and passwords, presented to every door and typed where they do not belong: nothing that
//! the server and the commands say has them.

use spindle_access::{Digest, Token};
use spindle_testkit::{HttpRequest, TokensFile};

use crate::{
    command_lines::{Talk, packet},
    fake_workq::{spindle, stderr, stdout},
    serve::{Served, serve},
};

const PASSWORD: &str = "a-password-that-nobody-guesses";
const JSON: &str = "Content-Type: application/json\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
/// What is said in place of a token.
const HIDDEN: &str = "spindle_…";

/// A token that the server knows, and one that it does not.
struct Secrets {
    known: String,
    unknown: String,
}

impl Secrets {
    fn new() -> Secrets {
        let [known, unknown] = [(); 2].map(|()| Token::random().unwrap().reveal().to_owned());
        Secrets { known, unknown }
    }

    fn tokens(&self) -> [&str; 2] {
        [&self.known, &self.unknown]
    }

    /// Nor are they there with other letters, which would be easy to undo.
    #[track_caller]
    fn are_not_in(&self, said: &str) {
        let folded = said.to_lowercase();
        for secret in [&self.known, &self.unknown, PASSWORD] {
            assert!(!folded.contains(&secret.to_lowercase()), "{said}");
        }
    }

    /// Sends a line or a message, and reads an answer with this part.
    #[track_caller]
    fn says(&self, talk: &mut Talk, line: impl AsRef<[u8]>, part: &str) {
        let heard = talk.ask(line, part);
        self.are_not_in(&String::from_utf8_lossy(&heard));
    }

    /// Sends a request, and reads an answer with this part.
    #[track_caller]
    fn asks(&self, served: &Served, head: &str, headers: &str, body: &str, part: &str) -> String {
        let address = served.address_of("http");
        let headers = if headers.contains("Host: ") {
            headers.to_owned()
        } else {
            format!("Host: {address}\r\n{headers}")
        };
        // LightJQ may answer in MessagePack.
        let answer = HttpRequest::send_with(&address, head, &headers, body).bytes();
        let text = String::from_utf8_lossy(&answer).into_owned();
        self.are_not_in(&text);
        assert!(text.contains(part), "{head} {headers} {body}: {text}");
        text
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.known)
    }
}

fn presents_them_to_workq_and_gearman(served: &Served, secrets: &Secrets) {
    let mut talk = Talk::with(served, "workq");
    secrets.says(&mut talk, format!("auth {}\r\n", secrets.unknown), "-CLIENT-ERROR");
    secrets.says(&mut talk, format!("auth {}\r\n", secrets.known), "+OK\r\n");
    secrets.says(&mut talk, "inspect queues 0 10\r\n", "+OK");
    let mut talk = Talk::with(served, "gearman");
    secrets.says(&mut talk, format!("auth {}\n", secrets.unknown), "ERR ");
    secrets.says(&mut talk, format!("auth {}\n", secrets.known), "OK");
    secrets.says(&mut talk, "workers\n", ".\n");
    let mut talk = Talk::with(served, "gearman");
    secrets.says(&mut talk, format!("auth {}\n", secrets.known), "OK");
    let create = packet(b"\x01SPD\x04", b"thumb\0\0\0\x01payload");
    secrets.says(&mut talk, create, ":");
}

fn presents_them_over_http(served: &Served, secrets: &Secrets) {
    let bearer = secrets.bearer();
    for (head, body) in [
        ("GET /api/v1/queues", ""),
        ("POST /api/v1/queues/bill/pause", "{}"),
        ("POST /job", "{\"name\":\"resize\",\"argument\":{}}"),
        ("POST /api/v0/job/create", "{}"),
    ] {
        secrets.asks(served, head, &format!("{JSON}{bearer}"), body, "HTTP/1.1 2");
        let unknown = format!("{JSON}Authorization: Bearer {}\r\n", secrets.unknown);
        secrets.asks(served, head, &unknown, body, "HTTP/1.1 401");
    }
}

/// The cookies that an answer sets, as a request sends them.
fn cookies_of(answer: &str) -> String {
    let lines = answer.lines().filter_map(|line| line.strip_prefix("set-cookie: "));
    let pairs: Vec<&str> = lines.map(|line| line.split(';').next().unwrap()).collect();
    format!("Cookie: {}\r\n", pairs.join("; "))
}

/// The form of the login page with this token, and the cookies to send it with.
fn login_form(served: &Served, secrets: &Secrets, token: &str) -> (String, String) {
    let page = secrets.asks(served, "GET /login", "", "", "HTTP/1.1 200");
    let field = page.split("name=\"form_token\" value=\"").nth(1).unwrap();
    let seal = field.split('"').next().unwrap().replace('+', "%2B").replace('=', "%3D");
    (cookies_of(&page), format!("form_token={seal}&next=%2Fqueues&token={token}"))
}

fn logs_in(served: &Served, secrets: &Secrets) {
    for (token, status) in [(&secrets.unknown, "HTTP/1.1 401"), (&secrets.known, "HTTP/1.1 303")] {
        let (cookies, form) = login_form(served, secrets, token);
        let headers = format!("{FORM}{cookies}");
        let answer = secrets.asks(served, "POST /login", &headers, &form, status);
        let session = cookies_of(&answer);
        let page = if token == &secrets.known { "HTTP/1.1 200" } else { "HTTP/1.1 401" };
        secrets.asks(served, "GET /queues", &session, "", page);
    }
}

fn presents_the_password(served: &Served, secrets: &Secrets) {
    let poke = |password: &str| {
        let data = "{\"targets\":[\"low\"]}";
        format!(
            "[0,{{\"no\":1,\"type\":\"poke\",\"password\":\"{password}\",\"data\":{data}}}]\x04"
        )
    };
    let mut talk = Talk::with(served, "jobd-master");
    secrets.says(&mut talk, poke(PASSWORD), "\"ok\"");
    let mut talk = Talk::with(served, "jobd-master");
    secrets.says(&mut talk, poke(&secrets.known), "invalid password");
}

fn types_them_into_lines(served: &Served, secrets: &Secrets) {
    for token in secrets.tokens() {
        let mut talk = Talk::with(served, "workq");
        for line in
            [format!("{token}\r\n"), format!("auth: {token}\r\n"), format!("add {token}\r\n")]
        {
            secrets.says(&mut talk, line, "-CLIENT-ERROR");
        }
        let mut talk = Talk::with(served, "gearman");
        let unknown = format!("ERR UNKNOWN_COMMAND Unknown+server+command{HIDDEN}\r\n");
        secrets.says(&mut talk, format!("{token}\n"), &unknown);
        secrets.says(&mut talk, format!("{token} status\r\n"), &unknown);
        secrets.says(&mut talk, format!("auth {token} {token}\n"), "ERR ");
        secrets.says(&mut talk, format!("auth {}\n", secrets.known), "OK");
        // CAN_DO, whose function the log names.
        let can_do = packet(b"\0REQ\0\0\0\x01", token.as_bytes());
        let grab = packet(b"\0REQ\0\0\0\x09", b"");
        secrets.says(&mut talk, [can_do, grab].concat(), "\0RES\0\0\0\x0a");
    }
}

fn types_them_into_requests(served: &Served, secrets: &Secrets) {
    let bearer = secrets.bearer();
    for token in secrets.tokens() {
        let ask = |head: &str, headers: &str, body: &str, part: &str| {
            secrets.asks(served, head, headers, body, part)
        };
        let job = "{\"queue\":\"mail\"}";
        ask(&format!("GET /{token}"), "", "", &format!("nothing at /{HIDDEN}"));
        ask(&format!("GET /{token}"), "Accept: text/html\r\n", "", &format!("/{HIDDEN}"));
        for path in ["/api/v1/", "/api/v1/jobs/", "/api/v1/jobs?status=", "/job/", "/api/v0/job/"] {
            ask(&format!("GET {path}{token}"), &bearer, "", "HTTP/1.1 4");
        }
        ask("GET /healthz", &format!("Host: {token}\r\n"), "", &format!("the name `{HIDDEN}`"));
        let kind = format!("Content-Type: {token}\r\n{bearer}");
        ask("POST /api/v1/jobs", &kind, job, &format!("not `{HIDDEN}`"));
        ask("POST /job", &kind, "{\"name\":\"resize\",\"argument\":{}}", "HTTP/1.1 4");
        let json = format!("{JSON}{bearer}");
        let field = format!("{{\"queue\":\"mail\",\"{token}\":1}}");
        ask("POST /api/v1/jobs", &json, &field, &format!("`{HIDDEN}`"));
        ask("POST /api/v0/job/create", &json, token, "HTTP/1.1 400");
        for path in ["/healthz", "/nowhere", "/job/1", "/api/v0/job/1"] {
            ask(
                &format!("GET {path}"),
                &format!("X-Request-Id: {token}\r\n"),
                "",
                "x-request-id: ",
            );
        }
        for scheme in ["", "Basic ", "Token "] {
            let header = format!("Authorization: {scheme}{token}\r\n");
            ask("GET /api/v1/queues", &header, "", "HTTP/1.1 401");
        }
        ask(&format!("{token} /api/v1/jobs"), &bearer, "", "HTTP/1.1 4");
        ask("GET /queues", &format!("Cookie: spindle_session={token}\r\n"), "", "HTTP/1.1 401");
        let sealed = format!("form_token={token}&next=%2F&token={token}");
        ask("POST /login", FORM, &sealed, "HTTP/1.1 4");
    }
}

fn types_them_into_commands(url: &str, secrets: &Secrets) {
    for token in secrets.tokens() {
        let queues = ["queues", "--url", url];
        let mut by_flag = spindle(&[&queues[..], &["--token-file", token]].concat());
        let mut by_variable = spindle(&queues);
        by_variable.env("SPINDLE_TOKEN_FILE", token);
        for command in [&mut by_flag, &mut by_variable] {
            let output = command.output().unwrap();
            let said = stderr(&output);
            secrets.are_not_in(&(stdout(&output) + &said));
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("cannot read {HIDDEN}: ")), "{said}");
            assert!(said.contains("the token itself into SPINDLE_TOKEN"), "{said}");
        }
        let typed: [&[&str]; 4] = [
            &["serve", "--memory", "--tokens", token],
            &["queues", "--token", token],
            &["queues", token],
            &[token],
        ];
        for arguments in typed {
            let output = spindle(arguments).output().unwrap();
            let said = stderr(&output);
            secrets.are_not_in(&said);
            assert_eq!(output.status.code(), Some(2), "{said}");
            let is_said = said.contains(HIDDEN) || arguments[1..] == ["--token", token];
            assert!(is_said, "{said}");
        }
    }
}

/// A worker's command line, as its own job sees it.
fn works_with_a_token(url: &str, secrets: &Secrets) {
    let run = |arguments: &[&str]| {
        let mut command = spindle(&[&arguments[..1], &["--url", url], &arguments[1..]].concat());
        let output = command.env("SPINDLE_TOKEN", &secrets.known).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        let said = stdout(&output);
        secrets.are_not_in(&(stderr(&output) + &said));
        said
    };
    let id = run(&["add", "mail", "x"]);
    run(&["work", "mail", "--once", "--", "sh", "-c", "cat /proc/$PPID/cmdline"]);
    let line = run(&["result", id.trim()]);
    assert!(line.contains("work\0--url\0"), "{line:?}");
    assert!(run(&["audit"]).contains("pause"));
}

#[test]
fn nothing_that_is_said_has_a_token_or_a_password() {
    for format in ["text", "json"] {
        let secrets = Secrets::new();
        let digest = Digest::of(secrets.known.as_bytes()).unwrap();
        let tokens = TokensFile::of(&format!(
            "[[token]]\nname = 'operator'\nsha256 = '{digest}'\nroles = ['admin']\nqueues = ['*']\n"
        ));
        let password = TokensFile::of(&format!("{PASSWORD}\n"));
        let (tokens, password) = (tokens.path(), password.path());
        let free = "127.0.0.1:0";
        let served = serve(
            &[
                &[
                    "--memory",
                    "--workq",
                    free,
                    "--gearman",
                    free,
                    "--http",
                    free,
                    "--jobd-master",
                    free,
                ][..],
                &["--log-level", "trace", "--log-format", format, "--require-auth"],
                &["--tokens", tokens.to_str().unwrap()],
                &["--jobd-master-password-file", password.to_str().unwrap()],
            ]
            .concat(),
        );
        let url = format!("http://{}", served.address_of("http"));
        presents_them_to_workq_and_gearman(&served, &secrets);
        presents_them_over_http(&served, &secrets);
        logs_in(&served, &secrets);
        presents_the_password(&served, &secrets);
        types_them_into_lines(&served, &secrets);
        types_them_into_requests(&served, &secrets);
        types_them_into_commands(&url, &secrets);
        works_with_a_token(&url, &secrets);
        for path in ["/metrics", "/api/v1/audit", "/api/v1/server"] {
            secrets.asks(&served, &format!("GET {path}"), &secrets.bearer(), "", "HTTP/1.1 200");
        }
        served.ask_to_end();
        let log = served.said.await_end();
        secrets.are_not_in(&log);
        // What was typed there is in the log, but for its secret part.
        assert!(log.contains(&format!("\"{HIDDEN}\"")), "{log}");
    }
}
