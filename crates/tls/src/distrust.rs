//! Why the certificate of the other side is refused, for the person who has to correct it.

use rustls::{CertificateError, OtherError};

/// What is wrong with a certificate. `authority` is the option that names the trusted authorities; the
/// text names it if no trusted authority has signed the certificate.
pub fn distrust(error: &CertificateError, authority: &str) -> String {
    match error {
        // An authority that was created again has the same name, and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "it is signed by nobody who is trusted: name the file of who vouches for it with \
             {authority}"
        ),
        CertificateError::Other(OtherError(other))
            if matches!(other.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            "it is one to sign others with (CA:TRUE), as `openssl req -x509` makes them; one that \
             a server or client shows needs basicConstraints=critical,CA:FALSE"
                .to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{Error, RootCertStore};

    use super::*;

    fn made(is_ca: IsCa) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = is_ca;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    /// What is said of a server that shows `shown` to a client that trusts `trusted`.
    fn said(
        shown: &CertificateDer<'_>,
        trusted: &CertificateDer<'_>,
        name: &'static str,
    ) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone().into_owned()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let name = ServerName::try_from(name).unwrap();
        let verified =
            verifier.build().unwrap().verify_server_cert(shown, &[], &name, &[], UnixTime::now());
        match verified {
            Ok(_) => "trusted".to_owned(),
            Err(Error::InvalidCertificate(error)) => distrust(&error, "--ca-file"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn people_read_what_they_can_mend() {
        let own = made(IsCa::ExplicitNoCa);
        let authority = made(IsCa::Ca(BasicConstraints::Unconstrained));
        assert_eq!(said(&own, &own, "localhost"), "trusted");
        let unknown = said(&own, &authority, "localhost");
        assert!(unknown.ends_with("vouches for it with --ca-file"), "{unknown}");
        for trusted in [&own, &authority] {
            let signs = said(&authority, trusted, "localhost");
            assert!(signs.contains("CA:FALSE") && !signs.contains("--ca-file"), "{signs}");
        }
        let other = said(&own, &own, "elsewhere");
        assert!(other.contains("elsewhere") && other.contains("localhost"), "{other}");
    }
}
