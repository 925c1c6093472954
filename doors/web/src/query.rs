//! Reading and writing the query strings of addresses.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// The fields of a query, in their order. An empty field counts as absent, because forms send
/// fields that were left empty.
#[derive(Clone, Default, Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn new() -> Query {
        Query::default()
    }

    /// What stands behind the question mark.
    pub fn read(text: &str) -> Query {
        Query::of(form_urlencoded::parse(text.as_bytes()).into_owned())
    }

    /// Fields that are read already. One may be there several times.
    pub fn of(fields: impl Iterator<Item = (String, String)>) -> Query {
        Query(fields.filter(|(_, value)| !value.is_empty()).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Joins all values of a field with commas, which turns a form's checkboxes into one field.
    #[must_use]
    pub fn joined(self, name: &str) -> Query {
        let values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let all = values.collect::<Vec<_>>().join(",");
        self.with(name, &all)
    }

    /// The same with another value in a field; with none, without the field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Query {
        self.0.retain(|(key, _)| key != name);
        if !value.is_empty() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Only these fields.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Query {
        self.0.retain(|(key, _)| names.contains(&key.as_str()));
        self
    }

    /// An address: a path with this behind it.
    pub fn to(&self, path: &str) -> String {
        let mut address = path.to_owned();
        for (number, (key, value)) in self.0.iter().enumerate() {
            let mark = if number == 0 { '?' } else { '&' };
            let value = percent_encode(value.as_bytes(), NON_ALPHANUMERIC);
            // Writing to a string does not fail.
            let _ = write!(address, "{mark}{key}={value}");
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let query = Query::new().with("queue", "a&b=<c> %00é").with("none", "");
        let address = query.to("/jobs");
        assert_eq!(address, "/jobs?queue=a%26b%3D%3Cc%3E%20%2500%C3%A9");
        let (_, text) = address.split_once('?').unwrap();
        assert_eq!(Query::read(text).get("queue"), Some("a&b=<c> %00é"));
        assert_eq!(Query::read("a=&b=+&c=1").to("/"), "/?b=%20&c=1");
        assert_eq!(query.clone().with("queue", "x").only(&["queue"]).to("/"), "/?queue=x");
        assert_eq!(query.only(&[]).to("/"), "/");
        assert_eq!(Query::read("id=1&a=b&id=2").joined("id").to("/"), "/?a=b&id=1%2C2");
        assert_eq!(Query::read("a=b").joined("id").to("/"), "/?a=b");
    }
}
