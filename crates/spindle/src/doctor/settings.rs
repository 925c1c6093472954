//! The settings, and the files they name.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use spindle_access::{Tokens, read_secret};
use spindle_tls::client::read_authorities;
use spindle_tls::{ServerFiles, ServerTls, may_sign, validity};

use super::Findings;
use crate::config::{Config, Missing, Resolved};

/// A certificate that ends sooner than this is to be renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Checks all that can be seen without the folder.
pub fn check(resolved: &Resolved, findings: &mut Findings) {
    let config = &resolved.config;
    findings.ok("settings", "all of them can be read, and none contradicts another");
    for name in &resolved.unknown_environment {
        let advice = "correct it or leave it out; `spindle config` lists all settings";
        findings.warn("settings", format!("{name} in the environment is no setting"), advice);
    }
    check_doors(config, findings);
    check_tokens(config, findings);
    check_tls(config, findings);
    for (what, path) in [
        ("jobd-master-password", &config.jobd_master_password_file),
        ("webhook-secret", &config.webhook_secret_file),
    ] {
        let Some(path) = path else { continue };
        match read_secret(path) {
            Ok(_) => findings.ok(what, path.display().to_string()),
            Err(error) => findings.wrong(what, error.to_string(), "the server does not start"),
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
            findings.wrong("tokens", error.to_string(), "the server does not start");
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
            Err(error) => {
                findings.wrong("cluster-ca", error.to_string(), "the server does not start")
            }
        }
    }
    let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else { return };
    let (certificate, key) = (certificate.clone(), key.clone());
    let path = certificate.clone();
    let client_ca = config.tls_client_ca.clone();
    let files = ServerFiles { certificate, key, client_ca, client_certificate_required: false };
    match ServerTls::load(files) {
        Err(error) => findings.wrong("certificate", error.to_string(), "the server does not start"),
        Ok(_) => {
            check_validity(&path, SystemTime::now(), findings);
            check_purpose(&path, findings);
        }
    }
}

fn check_validity(path: &Path, now: SystemTime, findings: &mut Findings) {
    let (from, until) = match validity(path) {
        Ok(validity) => validity,
        Err(error) => {
            findings.wrong("certificate", error.to_string(), "clients will refuse it");
            return;
        }
    };
    let shown = |at: SystemTime| {
        Timestamp::try_from(at).map_or_else(|_| "?".to_owned(), |at| format!("{at:.0}"))
    };
    let name = path.display();
    let renew = "renew it and send the server SIGHUP";
    if now < from {
        let advice = "set the machine's clock, or get another certificate";
        findings.wrong("certificate", format!("{name} is valid from {} on", shown(from)), advice);
    } else if now >= until {
        findings.wrong("certificate", format!("{name} has expired on {}", shown(until)), renew);
    } else if now + RENEW_BEFORE >= until {
        findings.warn("certificate", format!("{name} expires on {}", shown(until)), renew);
    } else {
        findings.ok("certificate", format!("{name} is valid until {}", shown(until)));
    }
}

fn check_purpose(path: &Path, findings: &mut Findings) {
    // A file that cannot be read is reported by the check of its validity.
    if may_sign(path).unwrap_or(false) {
        let found = format!(
            "{} may sign others (CA:TRUE): some clients refuse it from a server, Spindle's own too",
            path.display()
        );
        findings.warn("certificate", found, "make one with basicConstraints=critical,CA:FALSE");
    }
}

#[cfg(test)]
mod tests {
    use spindle_testkit::Certificates;

    use super::*;
    use crate::doctor::Verdict::{self, Ok, Warning, Wrong};

    #[test]
    fn a_certificate_is_good_until_it_is_to_be_renewed() {
        let certificates = Certificates::new();
        let path = certificates.expired_client("old").certificate;
        let (from, until) = validity(&path).unwrap();
        let second = Duration::from_secs(1);
        let cases: [(SystemTime, Verdict, &str); 6] = [
            (from - second, Wrong, "is valid from"),
            (from, Ok, "is valid until"),
            (until - RENEW_BEFORE - second, Ok, "is valid until"),
            (until - RENEW_BEFORE, Warning, "expires on"),
            (until - second, Warning, "expires on"),
            (until, Wrong, "has expired on"),
        ];
        for (now, verdict, part) in cases {
            let mut findings = Findings::default();
            check_validity(&path, now, &mut findings);
            let finding = &findings.0[0];
            assert!(finding.verdict == verdict && finding.found.contains(part), "{finding:?}");
        }
    }

    #[test]
    fn a_server_is_not_to_show_what_may_sign_others() {
        let certificates = Certificates::new();
        let found = |path: &Path| {
            let mut findings = Findings::default();
            check_purpose(path, &mut findings);
            findings.0
        };
        assert!(found(&certificates.server().certificate).is_empty());
        let found = found(&certificates.authority_as_a_server().certificate);
        assert!(found[0].verdict == Warning && found[0].found.contains("CA:TRUE"), "{found:?}");
    }
}
