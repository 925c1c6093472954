//! What is wrong with the certificates that a server shows.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::{DateTime, Decode, Error};
use x509_cert::ext::pkix::BasicConstraints;

/// A certificate that ends sooner than this is to be renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Why clients refuse what a server shows, or soon will. The text goes on behind the name of what is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// It, or one that leads to its authority, is not valid any more.
    Expired(DateTime),
    /// It, or one that leads to its authority, is not valid yet.
    Early(DateTime),
    /// It is valid for less than two weeks.
    ExpiresSoon(DateTime),
    /// It may sign others (`cA` of RFC 5280, 4.2.1.9), which clients on rustls refuse.
    MaySign,
    /// It, or one that leads to its authority, is not what RFC 5280 asks for.
    Malformed(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Expired(at) => write!(f, "has expired on {at}: clients that verify it refuse it"),
            Flaw::Early(from) => {
                write!(f, "is not valid before {from}: clients that verify it refuse it")
            }
            Flaw::ExpiresSoon(at) => write!(f, "expires on {at}"),
            Flaw::MaySign => f.write_str(
                "may sign others (CA:TRUE): some clients refuse it from a server, Spindle's own too",
            ),
            Flaw::Malformed(reason) => {
                write!(f, "is malformed: clients that verify it may refuse it: {reason}")
            }
        }
    }
}

/// A server's certificate and those that lead to its authority, as far as clients judge them.
#[derive(Debug)]
pub(crate) struct Shown(Result<Read, String>);

#[derive(Debug)]
struct Read {
    /// When all of them are valid (RFC 5280, 4.1.2.5).
    from: DateTime,
    until: DateTime,
    /// Of the first, which is the server's own.
    may_sign: bool,
}

impl Shown {
    /// Reads certificates that rustls has taken. It looks closely at the first only, so others may be
    /// malformed; a server with such a file serves clients that do not verify.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Shown {
        Shown(read(chain).map_err(|error| error.to_string()))
    }

    /// Until when all of them are valid.
    pub(crate) fn until(&self) -> Option<DateTime> {
        self.0.as_ref().ok().map(|read| read.until)
    }

    /// Whether all of them are valid now.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.0.as_ref().is_ok_and(|read| read.out_of_time(now).is_none())
    }

    /// Why it is not the time for them: they have expired, or are not valid yet.
    pub(crate) fn out_of_time(&self, now: SystemTime) -> Option<Flaw> {
        self.0.as_ref().ok()?.out_of_time(now)
    }

    /// All that is wrong with them.
    pub(crate) fn flaws(&self, now: SystemTime) -> Vec<Flaw> {
        match &self.0 {
            Ok(read) => {
                let of_time = read.out_of_time(now).or_else(|| read.ends_soon(now));
                of_time.into_iter().chain(read.may_sign.then_some(Flaw::MaySign)).collect()
            }
            Err(reason) => vec![Flaw::Malformed(reason.clone())],
        }
    }
}

impl Read {
    fn out_of_time(&self, now: SystemTime) -> Option<Flaw> {
        if now < time(self.from) {
            Some(Flaw::Early(self.from))
        } else if now >= time(self.until) {
            Some(Flaw::Expired(self.until))
        } else {
            None
        }
    }

    fn ends_soon(&self, now: SystemTime) -> Option<Flaw> {
        (now + RENEW_BEFORE >= time(self.until)).then_some(Flaw::ExpiresSoon(self.until))
    }
}

fn time(at: DateTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + at.unix_duration()
}

fn read(chain: &[CertificateDer<'_>]) -> Result<Read, Error> {
    let mut from = DateTime::from_unix_duration(Duration::ZERO)?;
    let (mut until, mut may_sign) = (DateTime::INFINITY, false);
    for (place, der) in chain.iter().enumerate() {
        let certificate = Certificate::from_der(der)?.tbs_certificate;
        from = from.max(certificate.validity.not_before.to_date_time());
        until = until.min(certificate.validity.not_after.to_date_time());
        if place == 0 {
            let constraints = certificate.get::<BasicConstraints>()?;
            may_sign = constraints.is_some_and(|(_, constraints)| constraints.ca);
        }
    }
    Ok(Read { from, until, may_sign })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// Valid in these years.
    fn made(from: i32, until: i32, is_ca: IsCa) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.is_ca = is_ca;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    fn said(chain: &[CertificateDer<'_>], now: SystemTime) -> String {
        let flaws = Shown::of(chain).flaws(now);
        flaws.iter().map(Flaw::to_string).collect::<Vec<_>>().join(", ")
    }

    fn year(year: u16) -> SystemTime {
        time(DateTime::new(year, 1, 1, 0, 0, 0).unwrap())
    }

    #[test]
    fn a_certificate_is_good_until_it_is_to_be_renewed() {
        let chain = [made(2020, 2021, IsCa::ExplicitNoCa)];
        let second = Duration::from_secs(1);
        let (from, until) = (year(2020), year(2021));
        let refused = "clients that verify it refuse it";
        for (now, flaw) in [
            (from - second, format!("is not valid before 2020-01-01T00:00:00Z: {refused}")),
            (from, String::new()),
            (until - RENEW_BEFORE - second, String::new()),
            (until - RENEW_BEFORE, "expires on 2021-01-01T00:00:00Z".to_owned()),
            (until - second, "expires on 2021-01-01T00:00:00Z".to_owned()),
            (until, format!("has expired on 2021-01-01T00:00:00Z: {refused}")),
        ] {
            assert_eq!(said(&chain, now), flaw);
            let is_valid = Shown::of(&chain).is_valid(now);
            assert_eq!(is_valid, !flaw.contains(refused), "{flaw}");
        }
    }

    #[test]
    fn those_that_lead_to_an_authority_are_to_be_valid_too_and_may_sign() {
        let authority = |from, until| made(from, until, IsCa::Ca(BasicConstraints::Unconstrained));
        let own = made(2020, 2040, IsCa::ExplicitNoCa);
        let old = [own.clone(), authority(2010, 2022)];
        assert_eq!(said(&old, year(2021)), "");
        assert!(said(&old, year(2023)).starts_with("has expired on 2022-01-01"));
        let new = [own, authority(2030, 2050)];
        assert!(said(&new, year(2025)).starts_with("is not valid before 2030-01-01"));
        assert_eq!(Shown::of(&new).until(), Some(DateTime::new(2040, 1, 1, 0, 0, 0).unwrap()));
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        let signs = [made(2020, 2021, IsCa::Ca(BasicConstraints::Unconstrained))];
        assert!(said(&signs, year(2020)).starts_with("may sign others (CA:TRUE)"));
        let both = said(&signs, year(2022));
        assert!(both.starts_with("has expired") && both.contains(", may sign"), "{both}");
    }

    #[test]
    fn what_cannot_be_read_is_neither_valid_nor_out_of_time() {
        let chain = [made(2020, 2021, IsCa::ExplicitNoCa), CertificateDer::from(vec![0x30, 0])];
        let shown = Shown::of(&chain);
        assert!(said(&chain, year(2020)).starts_with("is malformed"));
        assert!(!shown.is_valid(year(2020)));
        assert_eq!((shown.out_of_time(year(2020)), shown.until()), (None, None));
    }
}
