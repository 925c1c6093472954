//! `spindle token`: makes tokens, and says what is in a tokens file.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};
use spindle_access::{Identity, Role, Token, Tokens};

use crate::{
    cli::{CheckTokensArgs, NewTokenArgs, TokenCommand},
    exit::{Code, Failure},
    output::{Rows, print_all, write_json, write_line},
    quantity::parse_duration,
};

/// Does what is asked with tokens.
pub fn token(command: &TokenCommand) -> anyhow::Result<Code> {
    match command {
        TokenCommand::New(args) => new(args),
        TokenCommand::Check(args) => check(args),
    }
}

fn new(args: &NewTokenArgs) -> anyhow::Result<Code> {
    let token = match args.certificate {
        Some(_) => None,
        None => Some(Token::random().context("the system gives no random numbers")?),
    };
    let entry = entry(args, token.as_ref())?;
    // What the server would refuse is refused here, by the same code.
    Tokens::of_text(&entry).map_err(|reason| Failure::with(Code::Usage, reason))?;
    let mut out = io::stdout().lock();
    let secret = token.as_ref().map(Token::reveal);
    if args.json {
        write_json(&mut out, &json!({ "name": args.name, "token": secret, "entry": entry }))?;
        return Ok(Code::Ok);
    }
    if let Some(secret) = secret {
        write_line(&mut out, secret)?;
        write_line(&mut out, "")?;
    }
    write!(out, "{entry}")?;
    out.flush()?;
    let shown = if secret.is_some() { "the token is shown this once; " } else { "" };
    // Nobody is left to tell when this fails.
    let _ = writeln!(io::stderr(), "{shown}append the entry to the server's tokens file");
    Ok(Code::Ok)
}

/// The entry of the tokens file.
fn entry(args: &NewTokenArgs, token: Option<&Token>) -> anyhow::Result<String> {
    let text = |text: &str| toml::Value::from(text).to_string();
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|it| text(it)).collect();
        format!("[{}]", texts.join(", "))
    };
    let mut lines = vec!["[[token]]".to_owned(), format!("name = {}", text(&args.name))];
    lines.extend(token.map(|token| format!("sha256 = \"{}\"", token.digest())));
    lines.extend(args.certificate.as_deref().map(|name| format!("certificate = {}", text(name))));
    lines.push(format!("roles = {}", list(&args.roles)));
    lines.push(format!("queues = {}", list(&args.queues)));
    if let Some(when) = &args.expires {
        lines.push(format!("expires = \"{}\"", end(when)?));
    }
    Ok(lines.join("\n") + "\n")
}

/// A time to come, to the second.
fn end(when: &str) -> anyhow::Result<String> {
    let wrong = |reason: &str| Failure::with(Code::Usage, format!("--expires {when}: {reason}"));
    let time = match parse_duration(when) {
        Ok(after) => SystemTime::now().checked_add(after).and_then(|at| at.try_into().ok()),
        Err(_) => when.parse::<Timestamp>().ok(),
    };
    let hint = "write a time to come such as 90d, or one such as 2030-01-31T00:00:00Z (RFC 3339)";
    let time = time.ok_or_else(|| wrong(hint))?;
    if time <= spindle_client::now() {
        return Err(wrong("that has passed"));
    }
    Ok(format!("{time:.0}"))
}

fn check(args: &CheckTokensArgs) -> anyhow::Result<Code> {
    let tokens = Tokens::of_file(&args.file)?;
    let identities = tokens.identities();
    let items: Vec<Value> = identities.iter().map(|identity| shown(identity)).collect();
    print_all(&items, args.json, || {
        let mut rows = Rows::new(&["NAME", "ROLES", "QUEUES", "EXPIRES"]);
        for identity in identities {
            let roles: Vec<&str> = identity.roles().iter().map(|role| role.name()).collect();
            let expires = identity.expires().map_or("never".to_owned(), |_| ends(identity));
            let queues = identity.queues().join(",");
            rows.add([identity.name().to_owned(), roles.join(","), queues, expires]);
        }
        rows
    })
}

fn shown(identity: &Identity) -> Value {
    json!({
        "name": identity.name(),
        "roles": identity.roles().iter().copied().map(Role::name).collect::<Vec<_>>(),
        "queues": identity.queues(),
        "expires_at": identity.expires().and_then(at),
        "expired": identity.has_expired(SystemTime::now()),
    })
}

fn ends(identity: &Identity) -> String {
    let past = if identity.has_expired(SystemTime::now()) { " (has expired)" } else { "" };
    let time = identity.expires().and_then(at).unwrap_or_default();
    format!("{time}{past}")
}

fn at(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| format!("{time:.0}"))
}
