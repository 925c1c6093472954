//! Forms: no field is read before it is certain that a page of this server made the form.

use axum::extract::{FromRequest, Request};
use axum::http::header;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use spindle_http::{Answered, BodyLimits, Code, Problem, read_body};

use crate::enter::Visit;
use crate::query::Query;
use crate::web::Web;

/// The field that has a form's token.
pub(crate) const TOKEN: &str = "form_token";
/// The largest form, payloads included.
const BYTES_MAX: usize = 2 << 20;

/// Makes the tokens of forms, and knows them again. They are bound to the visitor's cookie: the
/// session's after a login, and a random one otherwise. A page of another site cannot read either.
pub(crate) struct Seal([u8; 32]);

impl Seal {
    pub fn random() -> Seal {
        Seal(rand::random())
    }

    fn mac(&self, visitor: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.0).expect("a key of HMAC has any length");
        mac.update(visitor.as_bytes());
        mac
    }

    /// The token of this visitor's forms.
    pub fn token(&self, visitor: &str) -> String {
        let token = self.mac(visitor).finalize().into_bytes();
        token.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this is the visitor's token. Takes the same time however the token differs.
    fn is_of(&self, token: &str, visitor: &str) -> bool {
        let digits = token.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = digits.collect();
        bytes.is_some_and(|bytes| self.mac(visitor).verify_slice(&bytes).is_ok())
    }
}

/// A payload that a form can carry: a text without CR, because browsers change line ends.
/// MessagePack counts as bytes, even where it happens to be text.
pub(crate) fn text_of(payload: Vec<u8>, kind: &str) -> Option<String> {
    let text = String::from_utf8(payload).ok()?;
    (kind != "msgpack" && !text.contains('\r')).then_some(text)
}

/// A form that a page of this server made for this visitor.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// The text of a field; empty if it is not there.
    pub fn field(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// What was typed into a field of several lines. Browsers send each line end as CR LF, whatever
    /// was typed or pasted; it is read as LF.
    pub fn lines(&self, name: &str) -> String {
        self.field(name).replace("\r\n", "\n")
    }

    /// The text of a field, unless it is empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.field(name).trim()).filter(|text| !text.is_empty())
    }

    /// All fields but the token, as an address would have them.
    pub fn query(&self) -> Query {
        Query::of(self.0.iter().filter(|(key, _)| key != TOKEN).cloned())
    }
}

impl FromRequest<Web> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, web: &Web) -> Answered<Form> {
        let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
        if !kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
            return Err(Problem::new(Code::UnsupportedType, "a form of a page is expected here"));
        }
        let visit = Visit::of(request.extensions())?;
        let limits = BodyLimits { bytes_max: BYTES_MAX, ..BodyLimits::default() };
        let body = read_body(request, limits).await?;
        let form = Form(form_urlencoded::parse(&body).into_owned().collect());
        if !web.seal().is_of(form.field(TOKEN), visit.sealed_to()) {
            let detail = "the form is not from a page of this server, or the page is from before \
                          your login or the server's last start: go back, reload it, and try again";
            return Err(Problem::new(Code::ForeignOrigin, detail));
        }
        Ok(form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_visitor_and_its_server_only() {
        let (seal, other) = (Seal::random(), Seal::random());
        let token = seal.token("anna");
        assert!(seal.is_of(&token, "anna"));
        assert!(!seal.is_of(&token, "berta"));
        assert!(!other.is_of(&token, "anna"));
        for wrong in ["", "zz", &token[2..], &format!("{token}00"), &token.replace(['a', '1'], "é")]
        {
            assert!(!seal.is_of(wrong, "anna"), "{wrong}");
        }
    }
}
