//! Who a certificate is for.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Any, Decode};

/// The common name of the subject (RFC 5280, appendix A.1, `id-at-commonName`). None if there is
/// none, if there are several, or if it is empty or has control characters: a name that can be read
/// in two ways must not let one client pass for another.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate.subject;
    let attributes = subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = attributes.filter(|it| it.oid == COMMON_NAME).map(|it| text(&it.value));
    match (names.next(), names.next()) {
        (Some(Some(name)), None) => Some(name),
        _ => None,
    }
}

fn text(value: &Any) -> Option<String> {
    let text = match value.decode_as::<Utf8StringRef<'_>>() {
        Ok(text) => text.as_str().to_owned(),
        Err(_) => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
    };
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
}

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn of(names: &[(DnType, DnValue)]) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        common_name(made.der())
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn the_common_name_of_the_subject_is_taken() {
        let company = (DnType::OrganizationName, utf8("company"));
        assert_eq!(of(&[company.clone(), (DnType::CommonName, utf8("mailer"))]).unwrap(), "mailer");
        let printable = DnValue::PrintableString("mailer 2".try_into().unwrap());
        assert_eq!(of(&[(DnType::CommonName, printable)]).unwrap(), "mailer 2");
        assert_eq!(of(&[company]), None);
        assert_eq!(of(&[(DnType::CommonName, utf8(""))]), None);
        assert_eq!(of(&[(DnType::CommonName, utf8("mailer\0admin"))]), None);
    }

    #[test]
    fn a_certificate_with_two_names_names_nobody() {
        // The library that makes certificates keeps one value of each kind.
        let also = DnType::CustomDnType(vec![2, 5, 4, 3]);
        assert_eq!(of(&[(DnType::CommonName, utf8("a")), (also, utf8("b"))]), None);
    }

    #[test]
    fn what_is_no_certificate_names_nobody() {
        for bytes in [&b""[..], b"\x30", b"\x30\x82\xff\xff", &[0x30; 500]] {
            assert_eq!(common_name(&CertificateDer::from(bytes.to_vec())), None);
        }
    }
}
