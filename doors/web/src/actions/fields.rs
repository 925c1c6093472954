//! Forms described by tables: each field has its place in the API's JSON and a notation.

use maud::{Markup, html};
use serde_json::{Map, Value};
use spindle_http::{Answered, Problem};

use crate::actions::times::{time_read, time_written};
use crate::form::Form;

/// How a value is written in a form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As it is.
    Text,
    /// A whole number, not below zero.
    Number,
    /// A whole number.
    Signed,
    /// A number with decimals.
    Decimal,
    /// A time with its unit; milliseconds for the API.
    Time,
    /// Texts, parted by commas.
    Texts,
    /// Whole numbers, not below zero, parted by commas.
    Numbers,
    /// One of these words: the API's name, and its meaning.
    Word(&'static [(&'static str, &'static str)]),
}

/// A field of a form.
pub(crate) struct Field {
    /// Where it is in the API's JSON.
    pub path: &'static [&'static str],
    /// Its name in the form.
    pub name: &'static str,
    pub label: &'static str,
    /// What may be written there, shown while it is empty.
    pub hint: &'static str,
    kind: Kind,
}

impl Field {
    pub const fn new(
        path: &'static [&'static str],
        name: &'static str,
        label: &'static str,
        hint: &'static str,
        kind: Kind,
    ) -> Field {
        Field { path, name, label, hint, kind }
    }
}

/// A field with its value. `hint` is shown while it is empty.
pub(crate) fn input(
    Field { name, label, kind, .. }: &Field,
    value: &str,
    hint: &str,
    is_required: bool,
) -> Markup {
    let is_number = matches!(kind, Kind::Number);
    let is_long = matches!(kind, Kind::Text | Kind::Texts | Kind::Numbers);
    let chars_max = if is_long { "1024" } else { "40" };
    html! {
        div {
            label for=(name) { (label) }
            @match kind {
                Kind::Word(words) => select id=(name) name=(name) {
                    @for (word, meaning) in *words {
                        option value=(word) selected[value == *word] { (meaning) }
                    }
                },
                _ => input id=(name) name=(name) value=(value) placeholder=(hint) maxlength=(chars_max)
                    inputmode=[is_number.then_some("numeric")] required[is_required] autocomplete="off";,
            }
        }
    }
}

/// What is set, as the form writes it.
pub(crate) fn written(set: &Value, Field { path, kind, .. }: &Field) -> String {
    let found = path.iter().fold(set, |value, key| &value[*key]);
    match (kind, found) {
        (_, Value::Null) => String::new(),
        (Kind::Time, value) => value.as_u64().map(time_written).unwrap_or_default(),
        (Kind::Texts, Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    }
}

/// The form's values as the API's request body, without the fields that were left empty.
pub(crate) fn body<'a>(
    fields: impl IntoIterator<Item = &'a Field>,
    form: &Form,
) -> Answered<Map<String, Value>> {
    let mut body = Map::new();
    for field @ Field { path, name, .. } in fields {
        let (Some(text), [outer @ .., last]) = (form.given(name), *path) else { continue };
        let value = read(field, text)?;
        let mut place = &mut body;
        for key in outer {
            let inner = place.entry(*key).or_insert_with(|| Map::new().into());
            place = inner.as_object_mut().expect("it was made as one");
        }
        place.insert((*last).to_owned(), value);
    }
    Ok(body)
}

fn read(Field { label, kind, .. }: &Field, text: &str) -> Answered<Value> {
    let refused = |what: &str| Problem::out_of_range(format!("{label}: {text} is {what}"));
    let digits = text.replace(',', "");
    match kind {
        Kind::Number => {
            digits.parse::<u64>().map(Value::from).map_err(|_| refused("no whole number"))
        }
        Kind::Signed => {
            digits.parse::<i64>().map(Value::from).map_err(|_| refused("no whole number"))
        }
        // The digits are kept as written, because the API reads decimals digit by digit.
        Kind::Decimal => serde_json::from_str::<serde_json::Number>(text)
            .map(Value::from)
            .map_err(|_| refused("no number")),
        Kind::Time => time_read(text)
            .map(Value::from)
            .ok_or_else(|| refused("no time; write it as in 90 s, 5 min, 1 h 30 min or 7 days")),
        Kind::Texts => Ok(parts(text).collect::<Vec<_>>().into()),
        Kind::Numbers => {
            let numbers: Result<Vec<u64>, _> = parts(text).map(str::parse).collect();
            numbers.map(Value::from).map_err(|_| refused("not whole numbers, parted by commas"))
        }
        Kind::Text | Kind::Word(_) => Ok(text.into()),
    }
}

/// What stands between the commas.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|text| !text.is_empty())
}
