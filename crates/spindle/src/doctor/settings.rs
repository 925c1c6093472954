//! The settings, and the files they name.

use std::{io::ErrorKind, time::SystemTime};

use spindle_access::{Tokens, read_secret};
use spindle_net::BindError;
use spindle_tls::client::read_authorities;
use spindle_tls::{Flaw, ServerFiles, ServerTls};

use super::{Findings, NO_START};
use crate::{
    config::{Config, Missing, Resolved},
    exit,
    serve::{host_name, not_bound},
    traces, webhooks,
};

/// Checks all that can be seen without the folder; a server may be at work on that one (`is_live`).
pub fn check(resolved: &Resolved, is_live: bool, findings: &mut Findings) {
    let config = &resolved.config;
    findings.ok("settings", "all of them can be read, and none contradicts another");
    for name in &resolved.unknown_environment {
        let advice = "correct it or leave it out; `spindle config` lists all settings";
        findings.warn("settings", format!("{name} in the environment is no setting"), advice);
    }
    check_doors(config, findings);
    check_addresses(config, is_live, findings);
    check_tokens(config, findings);
    check_tls(config, findings);
    if let Some(path) = &config.jobd_master_password_file {
        match read_secret(path) {
            Ok(_) => findings.ok("jobd-master-password", path.display().to_string()),
            Err(error) => findings.wrong("jobd-master-password", error.to_string(), NO_START),
        }
    }
    match webhooks::prepare(config) {
        Ok(None) => {}
        Ok(Some(_)) => findings.ok("webhooks", format!("{} of them", config.webhooks.len())),
        Err(error) => findings.wrong("webhooks", exit::whole(&error), NO_START),
    }
    match traces::start(config, host_name()) {
        Ok(None) => {}
        Ok(Some(_)) => findings.ok("traces", "they are exported"),
        Err(error) => findings.wrong("traces", exit::whole(&error), NO_START),
    }
}

/// Checks whether the doors can listen. Their addresses are taken if the server itself is at work.
fn check_addresses(config: &Config, is_live: bool, findings: &mut Findings) {
    for (door, addr) in config.doors() {
        let Err(source) = spindle_net::may_listen(addr) else { continue };
        let is_taken = source.kind() == ErrorKind::AddrInUse;
        let found = not_bound(BindError { door, addr, source }).to_string();
        // Without a data folder of its own it cannot be seen whether the server is at work.
        match (is_taken && is_live, is_taken && (config.memory || config.log.is_some())) {
            (true, _) => {}
            (false, true) => {
                findings.warn("doors", found, "if that is not this server, it does not start");
            }
            (false, false) => findings.wrong("doors", found, NO_START),
        }
    }
}

fn check_doors(config: &Config, findings: &mut Findings) {
    for (door, address) in config.doors() {
        let missing = match config.missing(door, address) {
            None => {
                findings.ok("doors", format!("{door} on {address}"));
                continue;
            }
            Some(Missing::Identity) => "it asks nobody who they are",
            Some(Missing::Tls) => "everyone on the way can read and change what is sent",
            Some(Missing::Both) => {
                "it asks nobody who they are, and everyone on the way can read and change what is \
                 sent"
            }
        };
        let advice = "give it tokens (--tokens) and a certificate (--tls-cert, --tls-key), or \
                      listen on loopback";
        findings.warn("doors", format!("{door} on {address}: {missing}"), advice);
    }
    match (config.cluster_listen, config.cluster_in_clear()) {
        (None, _) => {}
        (Some(address), None) => findings.ok("doors", format!("other nodes on {address}")),
        (Some(address), Some(_)) => findings.warn(
            "doors",
            format!(
                "other nodes on {address}: everyone on the way can read and change what is sent"
            ),
            "encrypt it with --cluster-ca-file",
        ),
    }
}

fn check_tokens(config: &Config, findings: &mut Findings) {
    let Some(path) = &config.tokens else { return };
    let tokens = match Tokens::of_file(path) {
        Ok(tokens) => tokens,
        Err(error) => {
            findings.wrong("tokens", error.to_string(), NO_START);
            return;
        }
    };
    let expired: Vec<&str> = tokens
        .identities()
        .into_iter()
        .filter(|identity| identity.has_expired(SystemTime::now()))
        .map(|identity| identity.name())
        .collect();
    let all = format!("{}: {} of them", path.display(), tokens.len());
    if expired.is_empty() {
        findings.ok("tokens", all);
    } else {
        let found = format!("{all}, expired: {}", expired.join(", "));
        findings.warn("tokens", found, "take them out, or make new ones with `spindle token new`");
    }
}

fn check_tls(config: &Config, findings: &mut Findings) {
    if let Some(path) = &config.cluster_ca_file {
        match read_authorities(path) {
            Ok(_) => findings.ok("cluster-ca", path.display().to_string()),
            Err(error) => findings.wrong("cluster-ca", error.to_string(), NO_START),
        }
    }
    let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else { return };
    let (certificate, key) = (certificate.clone(), key.clone());
    let client_ca = config.tls_client_ca.clone();
    let files = ServerFiles { certificate, key, client_ca, client_certificate_required: false };
    match ServerTls::load(files) {
        Err(error) => findings.wrong("certificate", error.to_string(), NO_START),
        Ok(tls) => check_certificate(&tls, SystemTime::now(), findings),
    }
}

/// Says why clients refuse the certificate, or until when they take it.
fn check_certificate(tls: &ServerTls, now: SystemTime, findings: &mut Findings) {
    let path = tls.files().certificate.display();
    let flaws = tls.flaws(now);
    for flaw in &flaws {
        let found = format!("{path} {flaw}");
        let renew = "renew it and send the server SIGHUP";
        let sign = "make one with basicConstraints=critical,CA:FALSE";
        match flaw {
            Flaw::Expired(_) => findings.wrong("certificate", found, renew),
            Flaw::Early(_) => {
                let advice = "set the machine's clock, or get another certificate";
                findings.wrong("certificate", found, advice);
            }
            Flaw::Malformed(_) => findings.wrong("certificate", found, "get another certificate"),
            Flaw::ExpiresSoon(_) => findings.warn("certificate", found, renew),
            Flaw::MaySign => findings.warn("certificate", found, sign),
        }
    }
    if let (Some(until), [] | [Flaw::MaySign]) = (tls.valid_until(), &flaws[..]) {
        findings.ok("certificate", format!("{path} is valid until {until}"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spindle_testkit::Certificates;
    use spindle_tls::client::Identity;

    use super::*;
    use crate::doctor::Verdict::{self, Ok, Warning, Wrong};

    /// The verdicts on a certificate at a time, and what was found.
    fn found(identity: Identity, now: SystemTime) -> (Vec<Verdict>, String) {
        let Identity { certificate, key } = identity;
        let files =
            ServerFiles { certificate, key, client_ca: None, client_certificate_required: false };
        let mut findings = Findings::default();
        check_certificate(&ServerTls::load(files).unwrap(), now, &mut findings);
        let verdicts = findings.0.iter().map(|finding| finding.verdict).collect();
        let texts: Vec<_> = findings.0.into_iter().map(|finding| finding.found).collect();
        (verdicts, texts.join("\n"))
    }

    #[test]
    fn a_certificate_is_good_until_it_is_to_be_renewed() {
        let certificates = Certificates::new();
        let day = Duration::from_secs(24 * 3600);
        // 2020-01-01 to 2021-01-01.
        let from = SystemTime::UNIX_EPOCH + 18_262 * day;
        let until = from + 366 * day;
        for (now, verdict, part) in [
            (from - day, Wrong, "is not valid before 2020-01-01"),
            (from, Ok, "is valid until 2021-01-01"),
            (until - 15 * day, Ok, "is valid until 2021-01-01"),
            (until - 14 * day, Warning, "expires on 2021-01-01"),
            (until, Wrong, "has expired on 2021-01-01"),
        ] {
            let (verdicts, text) = found(certificates.expired_client("old"), now);
            assert!(verdicts == [verdict] && text.contains(part), "{verdicts:?} {text}");
        }
    }

    #[test]
    fn a_server_is_not_to_show_what_may_sign_others() {
        let certificates = Certificates::new();
        let now = SystemTime::now();
        assert_eq!(found(certificates.server_named("localhost"), now).0, [Ok]);
        let (verdicts, text) = found(certificates.authority_as_a_server(), now);
        assert_eq!(verdicts, [Warning, Ok]);
        assert!(text.contains("CA:TRUE") && text.contains("is valid until"), "{text}");
    }
}
