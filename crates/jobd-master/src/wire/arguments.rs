//! What is in a request's `data`, checked with the original's words. The errors are the texts that
//! go back to the peer.

use std::num::NonZeroU32;

use serde_json::Value;

use super::javascript::{integer_of, type_of};

/// How many jobs of a target may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency(NonZeroU32);

impl Concurrency {
    /// More processes than any machine has.
    pub const MAX: u32 = 1_000_000;

    /// A concurrency from 1 to [`Concurrency::MAX`].
    pub fn new(value: i64) -> Option<Self> {
        let value = u32::try_from(value).ok().filter(|&value| value <= Self::MAX)?;
        NonZeroU32::new(value).map(Self)
    }

    /// The number.
    pub fn value(self) -> u32 {
        self.0.get()
    }
}

/// A request's `data`, or one of the objects in it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(&'a Value);

impl<'a> Arguments<'a> {
    /// The arguments in this `data`. Anything but an object counts as no arguments, as in the
    /// original.
    pub fn of(data: &'a Value) -> Self {
        Self(data)
    }

    /// An argument as it is, if it is there.
    pub fn field(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name)
    }

    /// An argument that must be there, whatever its type.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn required(&self, name: &str) -> Result<&'a Value, String> {
        self.field(name).ok_or_else(|| format!("missing required field {name}"))
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn text(&self, name: &str) -> Result<&'a str, String> {
        self.required(name)?.as_str().ok_or_else(|| format!("'{name}' must be string"))
    }

    /// A whole number that must be there.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn integer(&self, name: &str) -> Result<i64, String> {
        integer_of(self.required(name)?).ok_or_else(|| format!("'{name}' must be integer"))
    }

    /// `target` and `concurrency`, both required.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn target_concurrency(&self) -> Result<(&'a str, Concurrency), String> {
        let target = self.text("target")?;
        let concurrency = self.integer("concurrency")?;
        let concurrency =
            Concurrency::new(concurrency).ok_or_else(|| "Invalid concurrency value.".to_owned())?;
        Ok((target, concurrency))
    }

    /// `targets`, each once, or `None` when it was left out.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn targets(&self) -> Result<Option<Vec<String>>, String> {
        let Some(value) = self.field("targets") else { return Ok(None) };
        let items = value.as_array().ok_or("targets must be array")?;
        if items.is_empty() {
            return Err("targets are empty".to_owned());
        }
        let mut targets = indexmap::IndexSet::with_capacity(items.len());
        for item in items {
            let target = item
                .as_str()
                .ok_or_else(|| format!("all targets must be strings, {} given", type_of(item)))?;
            targets.insert(target.to_owned());
        }
        Ok(Some(targets.into_iter().collect()))
    }

    /// `ids`, in their order.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn ids(&self) -> Result<Vec<i64>, String> {
        let one;
        let items = match self.field("ids") {
            Some(Value::Array(items)) => items.as_slice(),
            // The original walks over the characters of a text.
            Some(text @ Value::String(_)) => {
                one = [text.clone()];
                &one
            }
            None => return Err("ids are missing".to_owned()),
            Some(_) => return Err("ids must be array".to_owned()),
        };
        if items.is_empty() {
            return Err("ids are empty".to_owned());
        }
        let id = |item: &Value| match item {
            Value::Number(number) => {
                integer_of(item).ok_or_else(|| format!("all ids must be integers, got {number}"))
            }
            other => Err(format!("all ids must be numbers, got {}", type_of(other))),
        };
        items.iter().map(id).collect()
    }

    /// `jobs`, a list of objects, required. `read` reads each of them.
    ///
    /// # Errors
    /// The text for the peer.
    pub fn jobs<T>(&self, read: impl Fn(Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let items = self.field("jobs").and_then(Value::as_array).ok_or("jobs must be array")?;
        if !items.iter().all(|item| item.is_object() || item.is_array()) {
            return Err("data is not an object".to_owned());
        }
        items.iter().map(|item| read(Self(item))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn targets_are_checked_with_the_originals_words() {
        for (data, expected) in [
            (json!({"targets": []}), "targets are empty"),
            (json!({"targets": "low"}), "targets must be array"),
            (json!({"targets": null}), "targets must be array"),
            (json!({"targets": [1]}), "all targets must be strings, number given"),
            (json!({"targets": ["a", null]}), "all targets must be strings, object given"),
        ] {
            assert_eq!(Arguments::of(&data).targets().unwrap_err(), expected, "{data}");
        }
        for data in [json!(null), json!("x"), json!([1]), json!({})] {
            assert_eq!(Arguments::of(&data).targets(), Ok(None), "{data}");
        }
        let data = json!({"targets": ["b", "a", "b"]});
        let targets = Arguments::of(&data).targets().unwrap().unwrap();
        assert_eq!(targets, ["b", "a"]);
    }

    #[test]
    fn target_and_concurrency_are_checked_with_the_originals_words() {
        for (data, expected) in [
            (json!({"target": "x"}), "missing required field concurrency"),
            (json!({"target": "x", "concurrency": 0}), "Invalid concurrency value."),
            (json!({"target": "x", "concurrency": -1}), "Invalid concurrency value."),
            (json!({"target": "x", "concurrency": "1"}), "'concurrency' must be integer"),
            (json!({"target": "x", "concurrency": 1.5}), "'concurrency' must be integer"),
            (json!({"concurrency": 1}), "missing required field target"),
            (json!({"target": 5, "concurrency": 1}), "'target' must be string"),
            (json!(null), "missing required field target"),
        ] {
            let error = Arguments::of(&data).target_concurrency().unwrap_err();
            assert_eq!(error, expected, "{data}");
        }
    }

    #[test]
    fn ids_are_checked_with_the_originals_words() {
        for (data, expected) in [
            (json!({"ids": ["1"]}), "all ids must be numbers, got string"),
            (json!({"ids": "abc"}), "all ids must be numbers, got string"),
            (json!({"ids": [null]}), "all ids must be numbers, got object"),
            (json!({"ids": [1.5]}), "all ids must be integers, got 1.5"),
            (json!({"ids": []}), "ids are empty"),
            (json!({"ids": 5}), "ids must be array"),
            (json!(null), "ids are missing"),
        ] {
            assert_eq!(Arguments::of(&data).ids().unwrap_err(), expected, "{data}");
        }
        let data = json!({"ids": [5, 6.0]});
        assert_eq!(Arguments::of(&data).ids().unwrap(), [5, 6]);
    }
}
